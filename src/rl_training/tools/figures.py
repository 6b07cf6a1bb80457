"""The figures of a report, as SVG that stands inside a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

import numpy as np

from rl_training.errors import import_extra
from rl_training.tools.compare import scores_by_env
from rl_training.tools.curves import RunCurves, group_runs
from rl_training.tools.plot import PANEL_HEIGHT, STYLE, learning_curves
from rl_training.tools.statistics import performance_profile

WIDTH = 6.0  # inches; on a telephone the letters are still large enough
PROFILE_HEIGHT = 3.0
MOST_PANELS = 8
DIAGNOSTICS = ("entropy", "approx_kl", "grad_norm", "explained_variance")


def drawn_curves(runs: Sequence[RunCurves], metric: str, by: str | None) -> str:
    """Learning curves above, the controls that moved beneath; nothing where no run has the metric."""
    if not any(len(run.series(metric).steps) for run in runs):
        return ""
    with _style():
        return _svg(learning_curves(runs, metric=metric, by=by, title="", width=WIDTH))


def drawn_panels(runs: Sequence[RunCurves], by: str | None) -> str:
    """A panel for each loss, and for what tells how an update went."""
    columns = dict.fromkeys(name for run in runs for name in run.columns())
    names = [name for name in columns if "loss" in name] + [name for name in DIAGNOSTICS if name in columns]
    if not names:
        return ""
    with _style():
        names = names[:MOST_PANELS]
        figure = _figure(PANEL_HEIGHT * len(names))
        panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for panel, name in zip(panels, names, strict=True):
            for index, line in enumerate(group_runs(runs, by)):
                for run in line.runs:
                    panel.plot(*run.series(name), color=f"C{index}", linewidth=1, alpha=0.7)
            panel.set_title(name, loc="left", fontsize=10, pad=3)
            panel.locator_params(axis="y", nbins=3)
        panels[-1].set_xlabel("environment steps")
        return _svg(figure)


def drawn_profile(runs: Sequence[RunCurves], metric: str, by: str | None) -> str:
    """The share of runs above each score, for groups of several runs."""
    runs = [run for run in runs if len(run.series(metric).steps)]
    tables = scores_by_env(runs, by, metric).values()
    scores = {name: np.array([each.score for each in found]) for groups in tables for name, found in groups.items()}
    if not any(len(of_group) > 1 for of_group in scores.values()):
        return ""
    everything = np.concatenate(list(scores.values()))
    margin = 0.05 * max(float(np.ptp(everything)), 1e-9)
    thresholds = np.linspace(everything.min() - margin, everything.max() + margin, 400)
    with _style():
        figure = _figure(PROFILE_HEIGHT)
        axes = figure.subplots()
        for name, of_group in scores.items():
            axes.plot(thresholds, performance_profile([of_group], thresholds), label=name)
        axes.set_xlabel(f"{metric} above")
        axes.set_ylabel("share of runs")
        axes.legend(fontsize=9)
        return _svg(figure)


def _style() -> Any:
    return import_extra("matplotlib", "plot").rc_context({**STYLE, "svg.fonttype": "none"})


def _figure(height: float) -> Any:
    return import_extra("matplotlib.figure", "plot").Figure(figsize=(WIDTH, height), layout="constrained")


def _svg(figure: Any) -> str:
    """The figure without what only a file of its own needs; groups lose their ids, which other figures have as well."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return re.sub(r'<g id="[^"]*">', "<g>", text.getvalue()[text.getvalue().index("<svg") :])
