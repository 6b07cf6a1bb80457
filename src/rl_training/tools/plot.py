"""Learning curves from `metrics.jsonl`: the metric above, beneath it a panel for each control that moved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, RLTrainingError, import_extra
from rl_training.experiment.config import read_yaml
from rl_training.experiment.logging import JSONL_NAME, STEP_KEY
from rl_training.experiment.runs import list_runs, parse_row

FORMATS = (".png", ".svg", ".pdf")
SAME_LINE = ("algo", "env_id", "env_kwargs", "wrappers", "num_envs", "algo_kwargs")  # runs that agree here are seeds
GRID_POINTS = 200
LABEL_LENGTH = 50
SMOOTHED_SHARE = 0.05  # of a curve's points, in one moving mean
WIDTH, MAIN_HEIGHT, PANEL_HEIGHT = 8.0, 4.0, 1.3  # inches
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "rl-training",  # equal runs give equal files
}

Array = NDArray[np.float64]


class Series(NamedTuple):
    steps: Array
    values: Array


@dataclass(frozen=True)
class RunCurves:
    """The rows that a run logged."""

    path: Path
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    def series(self, name: str) -> Series:
        """The rows that have a number under the name; of several at one step, the last."""
        points = {row[STEP_KEY]: row[name] for row in self.rows if STEP_KEY in row and _is_number(row.get(name))}
        steps = sorted(points)
        return Series(np.array(steps, dtype=float), np.array([points[step] for step in steps], dtype=float))

    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def moving_controls(self) -> list[str]:
        """The hyper-parameters that were logged with more than one value."""
        controls = [name for name in self.columns() if name in self.config.get("algo_kwargs", {})]
        return [name for name in controls if _moves(self.series(name).values)]


@dataclass(frozen=True)
class Line:
    """One line of the plot: a run, or the runs that differ in their seed only."""

    label: str
    runs: tuple[RunCurves, ...]


class Plotted(NamedTuple):
    runs: list[Path]
    without_rows: list[Path]
    points: int


def plot_runs(
    paths: Iterable[Path | str],
    output: Path | str,
    *,
    metric: str = "return_mean",
    controls: str | Sequence[str] = "auto",
    title: str | None = None,
) -> Plotted:
    """Draws the runs at or below the paths into a file; `controls` is `auto`, `none` or names of logged columns."""
    output = Path(output)
    if output.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot plot to {output}: the name must end in {', '.join(FORMATS)}")
    matplotlib = import_extra("matplotlib", "plot")
    runs, without_rows = find_runs(paths)
    with matplotlib.rc_context(STYLE):
        figure = learning_curves(runs, metric=metric, controls=controls, title=title)
        output.parent.mkdir(parents=True, exist_ok=True)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(output.suffix.lower())
        figure.savefig(output, dpi=150, metadata=metadata)
    return Plotted([run.path for run in runs], without_rows, sum(len(run.series(metric).steps) for run in runs))


def find_runs(paths: Iterable[Path | str]) -> tuple[list[RunCurves], list[Path]]:
    """The runs with rows, and the paths of those without; a run that was named itself must have some."""
    runs: dict[Path, RunCurves] = {}
    without_rows: dict[Path, None] = {}
    for path in map(Path, paths):
        found = [info.path for info in list_runs(path)]
        if not found:
            raise RLTrainingError(f"there is no run at or below {path}")
        for run_path in found:
            run = read_run(run_path)
            if run.rows:
                runs[run_path] = run
            elif run_path == path:
                raise RLTrainingError(f"{path} has no rows in {JSONL_NAME}: it has logged nothing yet")
            else:
                without_rows[run_path] = None
    if not runs:
        raise RLTrainingError(f"no run has rows in {JSONL_NAME}: {', '.join(map(str, without_rows))}")
    return list(runs.values()), list(without_rows)


def read_run(path: Path) -> RunCurves:
    metrics = path / JSONL_NAME
    lines = metrics.read_text(encoding="utf-8", errors="replace").splitlines() if metrics.is_file() else []
    return RunCurves(path, read_yaml(path / "config.yaml"), [row for row in map(parse_row, lines) if row is not None])


def learning_curves(
    runs: Sequence[RunCurves],
    *,
    metric: str = "return_mean",
    controls: str | Sequence[str] = "auto",
    title: str | None = None,
) -> Any:
    """The `matplotlib.figure.Figure`: axes 0 is the metric, each further one a control."""
    figures = import_extra("matplotlib.figure", "plot")
    ticker = import_extra("matplotlib.ticker", "plot")
    for run in runs:
        if not len(run.series(metric).steps):
            raise ConfigError(f"{run.path} has no numbers for {metric!r}; it logged {', '.join(run.columns())}")
    names, lines = chosen_controls(runs, controls), group_runs(runs)
    figure = figures.Figure(figsize=(WIDTH, MAIN_HEIGHT + PANEL_HEIGHT * len(names)), layout="constrained")
    heights = [MAIN_HEIGHT, *[PANEL_HEIGHT] * len(names)]
    main, *panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for index, line in enumerate(lines):
        _draw_metric(main, line, metric, f"C{index}")
        for panel, name in zip(panels, names, strict=True):
            _draw_control(panel, line, name, f"C{index}")
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(name, loc="left", fontsize=10, pad=3)
        panel.locator_params(axis="y", nbins=3)
    main.set_title(title if title is not None else _title(lines))
    main.set_ylabel(metric)
    _draw_legend(main, lines, metric)
    bottom = panels[-1] if panels else main
    bottom.set_xlabel("environment steps")
    bottom.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    return figure


def chosen_controls(runs: Sequence[RunCurves], controls: str | Sequence[str]) -> list[str]:
    if controls == "none":
        return []
    if controls == "auto":
        return list(dict.fromkeys(name for run in runs for name in run.moving_controls()))
    names = controls.split(",") if isinstance(controls, str) else list(controls)
    logged = list(dict.fromkeys(name for run in runs for name in run.columns()))
    for name in names:
        if name not in logged:
            raise ConfigError(f"no run logged {name!r}; there are: {', '.join(logged)}")
    return names


def group_runs(runs: Sequence[RunCurves]) -> list[Line]:
    """Seeds of one configuration become one line, labelled by what tells it from the other lines."""
    groups: dict[str, list[RunCurves]] = {}
    for run in runs:
        same = {key: run.config.get(key) for key in SAME_LINE}
        groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(run)
    members = [tuple(group) for group in groups.values()]
    settings = [_settings(group[0].config) for group in members]
    return [Line(_label(group, own, settings), group) for group, own in zip(members, settings, strict=True)]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config.get(key) for key in SAME_LINE if key != "algo_kwargs"} | dict(config.get("algo_kwargs", {}))


def _label(group: Sequence[RunCurves], own: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> str:
    """Hyper-parameters only where the same algorithm has several lines on the same environment."""
    siblings = [other for other in settings if all(other[key] == own[key] for key in ("algo", "env_id"))]
    names = [str(own[key]) for key in ("algo", "env_id") if any(other[key] != own[key] for other in settings)]
    keys = dict.fromkeys(key for other in siblings for key in other)
    differing = [key for key in keys if any(other.get(key) != own.get(key) for other in siblings)]
    details = [f"{key} {own[key]}" for key in differing if own.get(key) is not None]
    seeds = f"{len(group)} seeds" if len(group) > 1 else f"seed {group[0].config.get('seed')}"
    text = ", ".join([" on ".join(names)] * bool(names) + details)
    return f"{shorten(text, LABEL_LENGTH, placeholder=' …')} ({seeds})" if text else seeds


def smoothed(values: Array) -> Array:
    """A centred moving mean; at the ends, over the points that there are."""
    window = np.ones(max(1, round(len(values) * SMOOTHED_SHARE)) | 1)
    reach = len(window) // 2
    sums, counts = np.convolve(values, window), np.convolve(np.ones(len(values)), window)
    return (sums / counts)[reach : reach + len(values)]


class Band(NamedTuple):
    steps: Array
    mean: Array
    low: Array
    high: Array


def seed_band(series: Sequence[Series]) -> Band:
    """Mean, least and greatest over the seeds, on one grid over the steps that all of them have."""
    first, last = max(s.steps[0] for s in series), min(s.steps[-1] for s in series)
    grid = np.linspace(first, last, GRID_POINTS if first < last else 0)
    seeds = np.array([np.interp(grid, s.steps, s.values) for s in series])
    return Band(grid, seeds.mean(0), seeds.min(0), seeds.max(0))


def _draw_metric(axes: Any, line: Line, metric: str, color: str) -> None:
    series = [run.series(metric) for run in line.runs]
    for raw in series:
        axes.plot(*raw, color=color, alpha=0.3, linewidth=1, marker="." if len(raw.steps) == 1 else None)
    band = seed_band([Series(raw.steps, smoothed(raw.values)) for raw in series])
    if len(series) > 1:
        axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.15, linewidth=0)
    axes.plot(band.steps, band.mean, color=color, linewidth=2, label=line.label)
    for run in line.runs:
        axes.plot(*run.series(f"eval_{metric}"), "o", color=color, markersize=6, markeredgecolor="white")


def _draw_control(axes: Any, line: Line, name: str, color: str) -> None:
    for run in line.runs:
        axes.plot(*run.series(name), color=color, linewidth=1.5)


def _draw_legend(axes: Any, lines: Sequence[Line], metric: str) -> None:
    if any(len(run.series(f"eval_{metric}").steps) for line in lines for run in line.runs):
        axes.plot([], [], "o", color="0.4", markersize=6, label="evaluation")
    if any(len(line.runs) > 1 for line in lines):
        axes.fill_between([], [], color="0.4", alpha=0.3, linewidth=0, label="least to greatest seed")
    axes.legend(fontsize=10)


def _title(lines: Sequence[Line]) -> str:
    """Returns the words that all lines have in common."""
    shared = [{str(run.config.get(key)) for line in lines for run in line.runs} for key in ("algo", "env_id")]
    return " on ".join(next(iter(values)) for values in shared if len(values) == 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _moves(values: Array) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 1e-9 * np.abs(values).max())
