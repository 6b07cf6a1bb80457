"""Comparison of runs: groups side by side in each environment, with intervals and the time to a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl_training.experiment.rows import STEP_KEY
from rl_training.experiment.runs import is_number
from rl_training.runtime.readings import number_text
from rl_training.tools.curves import Line, RunCurves, find_runs, group_runs, with_metric
from rl_training.tools.statistics import (
    Array,
    Interval,
    bootstrap_interval,
    improvement_interval,
    iqm,
    pooled_iqm,
    probability_of_improvement,
)

METRIC = "eval_return_mean"
ENOUGH_SEEDS = 5
ALL_ENVIRONMENTS = "all environments"


class Scored(NamedTuple):
    """A run with its last score and, if there is a target, when it first reached that."""

    run: RunCurves
    score: float
    steps: float = np.inf
    seconds: float = np.inf
    cpu_seconds: float = np.inf


@dataclass(frozen=True)
class GroupScores:
    """The scores of one group in one environment; None where there is nothing to say."""

    env: str
    group: str
    seeds: int
    iqm: float
    iqm_interval: Interval | None
    mean: float
    median: float
    worst: float
    reached: int | None = None
    steps_to_target: float | None = None
    seconds_to_target: float | None = None
    cpu_seconds_to_target: float | None = None


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one group beats one of another, over the environments that both have."""

    group: str
    over: str
    probability: float
    interval: Interval | None
    envs: int


@dataclass(frozen=True)
class Comparison:
    metric: str
    by: str
    target: float | None
    groups: tuple[GroupScores, ...]
    improvements: tuple[Improvement, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_runs(
    paths: Iterable[Path | str], *, by: str | None = None, target: float | None = None, metric: str = METRIC
) -> Comparison:
    """Compares the runs at or below the paths by the last value that each logged for the metric.

    `by` is `algo`, `preset` or any key of the config; without it, the seeds of one configuration are a group.
    """
    runs, without_rows = find_runs(paths)
    return compare_curves(runs, by=by, target=target, metric=metric, left_out=without_rows)


def compare_curves(
    runs: Sequence[RunCurves],
    *,
    by: str | None = None,
    target: float | None = None,
    metric: str = METRIC,
    left_out: Sequence[Path] = (),
) -> Comparison:
    """Compares runs that were read already."""
    scored, without_metric = with_metric(runs, metric)
    tables = scores_by_env(scored, by, metric, target)
    groups = [_group_scores(env, name, found, target) for env, of in tables.items() for name, found in of.items()]
    if len(tables) > 1:
        groups += _over_all(tables)
    return Comparison(
        metric=metric,
        by=by or "configuration",
        target=target,
        groups=tuple(groups),
        improvements=tuple(_improvements(tables)),
        notes=(
            *(f"left out, no rows yet: {path}" for path in left_out),
            *(f"left out, no numbers for {metric}: {path}" for path in without_metric),
            *_notes(tables),
        ),
    )


Tables = Mapping[str, Mapping[str, Sequence[Scored]]]  # by environment, then by group


def scores_by_env(runs: Sequence[RunCurves], by: str | None, metric: str, target: float | None = None) -> Tables:
    """The scores of each group in each environment, in the order of the runs."""
    return {
        env: {group_name(line): [_scored(run, metric, target) for run in line.runs] for line in group_runs(of_env, by)}
        for env, of_env in runs_by_env(runs).items()
    }


def runs_by_env(runs: Sequence[RunCurves]) -> dict[str, list[RunCurves]]:
    found: dict[str, list[RunCurves]] = {}
    for run in runs:
        found.setdefault(str(run.config.get("env_id")), []).append(run)
    return found


def group_name(line: Line) -> str:
    """A line's label without its count of seeds, so that it is the same in every environment."""
    name = line.label.rpartition(" (")[0]
    return name or str(line.runs[0].config.get("algo"))


def _scored(run: RunCurves, metric: str, target: float | None) -> Scored:
    steps, values = run.series(metric)
    reached = np.flatnonzero(values >= (math.inf if target is None else target))
    if not len(reached):
        return Scored(run, float(values[-1]))
    step = float(steps[reached[0]])
    return Scored(run, float(values[-1]), step, _time_at(run, "seconds", step), _time_at(run, "cpu_seconds", step))


def _time_at(run: RunCurves, column: str, step: float) -> float:
    """The time at a step, between the rows that have it; not a number in a run that did not log it."""
    times = run.series(column)
    if not len(times.steps):
        return np.nan
    return float(np.interp(step, [0.0, *times.steps], [0.0, *times.values]))


def _scores(found: Iterable[Scored]) -> Array:
    return np.array([each.score for each in found])


def _group_scores(env: str, group: str, found: Sequence[Scored], target: float | None) -> GroupScores:
    scores = _scores(found)
    common = _summary(env, group, [scores])
    if target is None:
        return GroupScores(**common)
    return GroupScores(
        **common,
        reached=sum(math.isfinite(each.steps) for each in found),
        steps_to_target=_median_time([each.steps for each in found]),
        seconds_to_target=_median_time([each.seconds for each in found]),
        cpu_seconds_to_target=_median_time([each.cpu_seconds for each in found]),
    )


def _summary(env: str, group: str, tasks: Sequence[Array]) -> dict[str, Any]:
    scores = np.concatenate(list(tasks))
    return {
        "env": env,
        "group": group,
        "seeds": min(map(len, tasks)),
        "iqm": iqm(scores),
        "iqm_interval": bootstrap_interval(pooled_iqm, tasks) if min(map(len, tasks)) > 1 else None,
        "mean": float(scores.mean()),
        "median": float(np.median(scores)),
        "worst": float(scores.min()),
    }


def _median_time(times: Sequence[float]) -> float | None:
    """The median over all runs, those that never reached the target included; None if it is one of them."""
    median = float(np.median(times))
    return median if math.isfinite(median) else None


def _over_all(tables: Tables) -> list[GroupScores]:
    """Groups that have every environment, on one scale: 0 and 1 are the worst and the best run of an environment."""
    spans = {}
    for env, groups in tables.items():
        scores = np.concatenate([_scores(found) for found in groups.values()])
        spans[env] = (scores.min(), max(np.ptp(scores), 1e-12))
    shared = [name for name in next(iter(tables.values())) if all(name in groups for groups in tables.values())]
    scaled = {
        name: [(_scores(tables[env][name]) - low) / span for env, (low, span) in spans.items()] for name in shared
    }
    return [GroupScores(**_summary(ALL_ENVIRONMENTS, name, tasks)) for name, tasks in scaled.items()]


def _improvements(tables: Tables) -> list[Improvement]:
    names = list(dict.fromkeys(name for groups in tables.values() for name in groups))
    found = []
    for ours, theirs in combinations(names, 2):
        both = [groups for groups in tables.values() if ours in groups and theirs in groups]
        if both:
            sides = [[_scores(groups[name]) for groups in both] for name in (ours, theirs)]
            enough = min(len(scores) for side in sides for scores in side) > 1
            interval = improvement_interval(*sides) if enough else None
            found.append(Improvement(ours, theirs, probability_of_improvement(*sides), interval, len(both)))
    return found


def _notes(tables: Tables) -> list[str]:
    notes = []
    for env, groups in tables.items():
        for name, found in groups.items():
            where, runs = f"{name} on {env}", [each.run for each in found]
            if len(runs) < ENOUGH_SEEDS:
                few = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
                notes.append(f"too few seeds: {where} has {few}; train {ENOUGH_SEEDS} or more before you conclude")
            if early := sum(not is_finished(run) for run in runs):
                notes.append(f"{where}: {early} of {len(runs)} runs ended before their budget, or still go on")
            if (mixed := len(group_runs(runs))) > 1:
                notes.append(f"{where}: {mixed} configurations are mixed")
    return notes


def is_finished(run: RunCurves) -> bool:
    """Whether the rows reach the budget."""
    budget, steps = run.config.get("total_timesteps"), run.series(STEP_KEY).steps
    return not is_number(budget) or (len(steps) > 0 and bool(steps[-1] >= budget))


def score_rows(found: Comparison, env: str) -> list[dict[str, object]]:
    """The groups of one environment as the rows of a table, numbers as texts."""
    rows: list[dict[str, object]] = []
    for group in (each for each in found.groups if each.env == env):
        row: dict[str, object] = {
            "group": group.group,
            "seeds": group.seeds,
            "IQM": number_text(group.iqm),
            "95%": "-" if group.iqm_interval is None else " to ".join(map(number_text, group.iqm_interval)),
            "mean": number_text(group.mean),
            "median": number_text(group.median),
            "worst": number_text(group.worst),
        }
        if group.reached is not None:
            row[f"reached {found.target:g}"] = f"{group.reached} of {group.seeds}"
            row["steps"] = number_text(group.steps_to_target)
            row["seconds"] = number_text(group.seconds_to_target)
            row["CPU seconds"] = number_text(group.cpu_seconds_to_target)
        rows.append(row)
    return rows
