"""Runs as they are read from `metrics.jsonl`, and which of them belong together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, RLTrainingError, did_you_mean
from rl_training.experiment.config import make_config, read_yaml
from rl_training.experiment.logging import JSONL_NAME
from rl_training.experiment.presets import list_presets, load_preset
from rl_training.experiment.rows import STEP_KEY
from rl_training.experiment.runs import is_number, list_runs, parse_row

SETTINGS = ("algo", "env_id", "env_kwargs", "wrappers", "num_envs", "algo_kwargs")
SAME_LINE = (*SETTINGS, "total_timesteps")  # runs that agree here are seeds of one configuration
LABEL_LENGTH = 50
NO_PRESET = "no preset"

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
        points = {row[STEP_KEY]: row[name] for row in self.rows if STEP_KEY in row and is_number(row.get(name))}
        steps = sorted(points)
        return Series(np.array(steps, dtype=float), np.array([points[step] for step in steps], dtype=float))

    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def moving_controls(self) -> list[str]:
        """The hyper-parameters that were logged with more than one value."""
        controls = [name for name in self.columns() if name in self.config.get("algo_kwargs", {})]
        return [name for name in controls if _moves(self.series(name).values)]

    def setting(self, key: str) -> Any:
        """The value of a key of the config, of the algorithm, or of a mapping in the config (`env_kwargs.key`)."""
        head, dot, tail = key.partition(".")
        if dot:
            return (self.config.get(head) or {}).get(tail)
        return self.config.get(key, self.config.get("algo_kwargs", {}).get(key))


@dataclass(frozen=True)
class Line:
    """The runs that are shown together: one run, or several that differ in their seed only or share a key."""

    label: str
    runs: tuple[RunCurves, ...]


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


def with_metric(runs: Sequence[RunCurves], metric: str) -> tuple[list[RunCurves], list[Path]]:
    """The runs that have numbers for the metric, and the paths of the others; one at least must have some."""
    having = [run for run in runs if len(run.series(metric).steps)]
    if not having:
        columns = dict.fromkeys(name for run in runs for name in run.columns())
        raise ConfigError(f"no run has numbers for {metric!r}; they logged {', '.join(columns)}")
    return having, [run.path for run in runs if not len(run.series(metric).steps)]


def group_runs(runs: Sequence[RunCurves], by: str | None = None) -> list[Line]:
    """Runs of one configuration, or with one value `by` algo, preset or any key; budgets are never mixed."""
    if by is not None:
        return _grouped_by(runs, by)
    groups: dict[str, list[RunCurves]] = {}
    for run in runs:
        same = {key: run.config.get(key) for key in SAME_LINE}
        groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(run)
    members = [tuple(group) for group in groups.values()]
    settings = [_settings(group[0].config) for group in members]
    return [Line(_label(group, own, settings), group) for group, own in zip(members, settings, strict=True)]


def _grouped_by(runs: Sequence[RunCurves], by: str) -> list[Line]:
    values = [_value_text(run, by) for run in runs]
    if all(value is None for value in values):
        keys = dict.fromkeys(key for run in runs for key in (*run.config, *run.config.get("algo_kwargs", {})))
        raise ConfigError(f"no run has the key {by!r}; {did_you_mean(by, ['preset', *keys])}")
    groups: dict[tuple[str, Any], list[RunCurves]] = {}
    for run, value in zip(runs, values, strict=True):
        groups.setdefault((str(value), run.config.get("total_timesteps")), []).append(run)
    shown = [value for value, _ in groups]
    lines = []
    for (value, budget), members in groups.items():
        label = value if by in ("algo", "preset", "env_id") else f"{by} {value}"
        steps = f", {budget:,} steps" if shown.count(value) > 1 and is_number(budget) else ""
        lines.append(Line(f"{label}{steps} ({_seeds(members)})", tuple(members)))
    return lines


def _value_text(run: RunCurves, by: str) -> str | None:
    if by == "preset":
        return preset_of(run.config)
    value = run.setting(by)
    return None if value is None else str(value)


def preset_of(config: Mapping[str, Any]) -> str:
    """The packaged preset whose settings a run had; its seed and its budget may be others."""
    own = {key: config.get(key) for key in SETTINGS}
    candidates = [name for name in list_presets() if name.startswith(f"{config.get('algo')}/")]
    return next((name for name in candidates if _preset_settings(name) == own), NO_PRESET)


def _preset_settings(name: str) -> dict[str, Any]:
    resolved = make_config(load_preset(name)).resolved()
    return {key: resolved[key] for key in SETTINGS}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config.get(key) for key in SAME_LINE if key != "algo_kwargs"} | dict(config.get("algo_kwargs", {}))


def _label(group: Sequence[RunCurves], own: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> str:
    """Hyper-parameters only where the same algorithm has several lines on the same environment."""
    siblings = [other for other in settings if all(other[key] == own[key] for key in ("algo", "env_id"))]
    names = [str(own[key]) for key in ("algo", "env_id") if any(other[key] != own[key] for other in settings)]
    keys = dict.fromkeys(key for other in siblings for key in other)
    differing = [key for key in keys if any(other.get(key) != own.get(key) for other in siblings)]
    details = [f"{key} {own[key]}" for key in differing if own.get(key) is not None]
    text = ", ".join([" on ".join(names)] * bool(names) + details)
    return f"{shorten(text, LABEL_LENGTH, placeholder=' …')} ({_seeds(group)})" if text else _seeds(group)


def _seeds(group: Sequence[RunCurves]) -> str:
    return f"{len(group)} seeds" if len(group) > 1 else f"seed {group[0].config.get('seed')}"


def _moves(values: Array) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 1e-9 * np.abs(values).max())
