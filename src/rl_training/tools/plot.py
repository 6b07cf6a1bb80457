"""Learning curves from `metrics.jsonl`: the metric above, beneath it a panel for each control that moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rl_training.errors import ConfigError, import_extra
from rl_training.tools.curves import Array, Line, RunCurves, Series, find_runs, group_runs, with_metric
from rl_training.tools.statistics import interval_reach

BandKind = Literal["ci", "std", "minmax"]
BANDS = {"ci": "95% interval of the mean", "std": "standard deviation", "minmax": "least to greatest seed"}
FORMATS = (".png", ".svg", ".pdf")
GRID_POINTS = 200
SMOOTHED_SHARE = 0.05  # of a curve's points, in one moving mean
WIDTH, MAIN_HEIGHT, PANEL_HEIGHT = 8.0, 4.0, 1.3  # inches
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "text.parse_math": False,  # a label may have a dollar in it
    "svg.hashsalt": "rl-training",  # equal runs give equal files
}


class Plotted(NamedTuple):
    runs: list[Path]
    without_rows: list[Path]
    without_metric: list[Path]
    points: int


def plot_runs(
    paths: Iterable[Path | str],
    output: Path | str,
    *,
    metric: str = "return_mean",
    controls: str | Sequence[str] = "auto",
    title: str | None = None,
    band: BandKind = "ci",
    by: str | None = None,
) -> Plotted:
    """Draws the runs at or below the paths into a file; runs without numbers for the metric are left out.

    `controls` is `auto`, `none` or names of logged columns; `by` groups runs as `group_runs` does.
    """
    output = check_format(output)
    matplotlib = import_extra("matplotlib", "plot")
    runs, without_rows = find_runs(paths)
    runs, without_metric = with_metric(runs, metric)
    with matplotlib.rc_context(STYLE):
        figure = learning_curves(runs, metric=metric, controls=controls, title=title, band=band, by=by)
        save_figure(figure, output)
    points = sum(len(run.series(metric).steps) for run in runs)
    return Plotted([run.path for run in runs], without_rows, without_metric, points)


def check_format(output: Path | str) -> Path:
    output = Path(output)
    if output.suffix.lower() not in FORMATS:
        raise ConfigError(f"cannot plot to {output}: the name must end in {', '.join(FORMATS)}")
    return output


def save_figure(figure: Any, output: Path) -> None:
    """Writes the figure; equal figures are equal files."""
    output.parent.mkdir(parents=True, exist_ok=True)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(output.suffix.lower())
    figure.savefig(output, dpi=150, metadata=metadata)


def learning_curves(
    runs: Sequence[RunCurves],
    *,
    metric: str = "return_mean",
    controls: str | Sequence[str] = "auto",
    title: str | None = None,
    band: BandKind = "ci",
    by: str | None = None,
    width: float = WIDTH,
) -> Any:
    """The `matplotlib.figure.Figure`: axes 0 is the metric, each further one a control."""
    figures = import_extra("matplotlib.figure", "plot")
    ticker = import_extra("matplotlib.ticker", "plot")
    runs, _ = with_metric(runs, metric)
    names, lines = chosen_controls(runs, controls), group_runs(runs, by)
    figure = figures.Figure(figsize=(width, MAIN_HEIGHT + PANEL_HEIGHT * len(names)), layout="constrained")
    heights = [MAIN_HEIGHT, *[PANEL_HEIGHT] * len(names)]
    main, *panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for index, line in enumerate(lines):
        _draw_metric(main, line, metric, f"C{index}", band)
        for panel, name in zip(panels, names, strict=True):
            _draw_control(panel, line, name, f"C{index}")
    for panel, name in zip(panels, names, strict=True):
        panel.set_title(name, loc="left", fontsize=10, pad=3)
        panel.locator_params(axis="y", nbins=3)
    main.set_title(title if title is not None else _title(lines))
    main.set_ylabel(metric)
    _draw_legend(main, lines, metric, band)
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


def seed_band(series: Sequence[Series], kind: BandKind = "ci") -> Band:
    """The mean over the seeds and a band around it, on one grid over the steps that most of the seeds have."""
    most = len(series) // 2 + 1
    first, last = sorted(s.steps[0] for s in series)[most - 1], sorted(s.steps[-1] for s in series)[-most]
    grid = np.linspace(first, last, GRID_POINTS if first < last else 0)
    seeds = np.array([np.interp(grid, *s, left=np.nan, right=np.nan) for s in series])
    count = np.isfinite(seeds).sum(0)  # one seed at least is there at every point
    mean = np.nansum(seeds, 0) / count
    if kind == "minmax":
        return Band(grid, mean, np.nanmin(seeds, 0), np.nanmax(seeds, 0))
    deviation = np.sqrt(np.nansum((seeds - mean) ** 2, 0) / np.maximum(count - 1, 1))
    reach = deviation if kind == "std" else interval_reach(deviation, count)
    return Band(grid, mean, mean - reach, mean + reach)


def _draw_metric(axes: Any, line: Line, metric: str, color: str, kind: BandKind) -> None:
    series = [run.series(metric) for run in line.runs]
    for raw in series:
        axes.plot(*raw, color=color, alpha=0.3, linewidth=1, marker="." if len(raw.steps) == 1 else None)
    band = seed_band([Series(raw.steps, smoothed(raw.values)) for raw in series], kind)
    if len(series) > 1:
        axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.15, linewidth=0)
    axes.plot(band.steps, band.mean, color=color, linewidth=2, label=line.label)
    for run in line.runs:
        axes.plot(*run.series(f"eval_{metric}"), "o", color=color, markersize=6, markeredgecolor="white")


def _draw_control(axes: Any, line: Line, name: str, color: str) -> None:
    for run in line.runs:
        axes.plot(*run.series(name), color=color, linewidth=1.5)


def _draw_legend(axes: Any, lines: Sequence[Line], metric: str, band: BandKind) -> None:
    if any(len(run.series(f"eval_{metric}").steps) for line in lines for run in line.runs):
        axes.plot([], [], "o", color="0.4", markersize=6, label="evaluation")
    if any(len(line.runs) > 1 for line in lines):
        axes.fill_between([], [], color="0.4", alpha=0.3, linewidth=0, label=BANDS[band])
    axes.legend(fontsize=10)


def _title(lines: Sequence[Line]) -> str:
    """Returns the words that all lines have in common."""
    shared = [{str(run.config.get(key)) for line in lines for run in line.runs} for key in ("algo", "env_id")]
    return " on ".join(next(iter(values)) for values in shared if len(values) == 1)
