"""Which experts of a mixture work for which task: a table of shares for each layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rl_training.errors import ConfigError, import_extra
from rl_training.tools.curves import Array, RunCurves, find_runs
from rl_training.tools.plot import STYLE, Plotted, check_format, save_figure

USE = re.compile(r"expert_use/(\d+)\.(\d+)(?:/(.+))?")
NEWEST_SHARE = 0.25  # of a run's rows: what the experts do in the end


def plot_experts(paths: Iterable[Path | str], output: Path | str) -> Plotted:
    """Draws the mean of the runs' newest shares: a panel for each layer, a row for each task."""
    output = check_format(output)
    matplotlib = import_extra("matplotlib", "plot")
    runs, without_rows = find_runs(paths)
    with_experts = [run for run in runs if any(map(USE.fullmatch, run.columns()))]
    if not with_experts:
        raise ConfigError(f"no run at or below {', '.join(map(str, paths))} logged expert_use; ScaleZero does")
    tables = expert_tables(with_experts)
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        save_figure(_figure(tables), output)
    left_out = [run.path for run in runs if run not in with_experts]
    return Plotted([run.path for run in with_experts], without_rows, left_out, sum(t.size for t in tables[1]))


def expert_tables(runs: Iterable[RunCurves]) -> tuple[list[str], list[Array]]:
    """(names of the rows, a table `[rows, experts]` for each layer): the tasks, or all tokens where there are none."""
    shares: dict[tuple[int, int, str], list[float]] = {}
    for run in runs:
        for name in run.columns():
            if found := USE.fullmatch(name):
                values = run.series(name).values
                newest = values[-max(1, round(NEWEST_SHARE * len(values))) :]
                shares.setdefault((int(found[1]), int(found[2]), found[3] or ""), []).append(float(newest.mean()))
    rows = sorted({row for *_, row in shares if row}) or [""]
    layers, experts = 1 + max(layer for layer, *_ in shares), 1 + max(expert for _, expert, _ in shares)
    tables = [np.full((len(rows), experts), np.nan) for _ in range(layers)]
    for (layer, expert, row), means in shares.items():
        if row in rows:
            tables[layer][rows.index(row), expert] = np.mean(means)
    return [row or "all" for row in rows], tables


def _figure(tables: tuple[list[str], list[Array]]) -> object:
    figures = import_extra("matplotlib.figure", "plot")
    rows, layers = tables
    size = (1.5 + 0.8 * sum(table.shape[1] for table in layers), 1.2 + 0.45 * len(rows))
    figure = figures.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(layers), squeeze=False, sharey=True)[0]
    for number, (axes, table) in enumerate(zip(panels, layers, strict=True)):
        axes.imshow(table, vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
        for (row, expert), share in np.ndenumerate(table):
            axes.text(expert, row, f"{share:.0%}", ha="center", va="center", color="w" if share > 0.6 else "k")
        axes.set_title(f"layer {number}")
        axes.set_xticks(range(table.shape[1]))
        axes.set_xlabel("expert")
    panels[0].set_yticks(range(len(rows)), rows)
    return figure
