"""Statistics of few runs (Agarwal et al., 2021): interquartile means, bootstrap intervals, profiles, improvement.

`Tasks` is one array of scores for each task; each score is that of a run. Runs are resampled within their task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Tasks = Sequence[Array]
RESAMPLES = 2_000
# Student's t at 97.5 %, for 1, 2, … degrees of freedom; beyond the table the normal distribution is near enough.
T_QUANTILES = np.array(
    [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 1.96]
)


class Interval(NamedTuple):
    low: float
    high: float


def iqm(scores: Array) -> float:
    """The mean of the middle half: a quarter of the scores, rounded down, is left out at either end."""
    ordered = np.sort(scores, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def pooled_iqm(tasks: Tasks) -> float:
    """The interquartile mean of all runs of all tasks, whose scores must be on one scale."""
    return iqm(np.concatenate(list(tasks)))


def interval_reach(deviation: Array | float, count: NDArray[np.int64] | int) -> Array:
    """Half of the 95 % interval of the mean of `count` scores with this deviation (Student's t)."""
    quantile = T_QUANTILES[np.clip(np.asarray(count) - 2, 0, len(T_QUANTILES) - 1)]
    return quantile * deviation / np.sqrt(count)


def bootstrap_interval(
    statistic: Callable[[Tasks], float], tasks: Tasks, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The 95 % percentile interval of a statistic; runs are drawn with replacement within each task."""
    generator = np.random.default_rng(seed)
    return _percentiles([statistic(_redrawn(tasks, generator)) for _ in range(resamples)])


def performance_profile(tasks: Tasks, thresholds: Array) -> Array:
    """The share of runs with a score above each threshold, with equal weight for each task."""
    return np.mean([(scores[:, None] > thresholds).mean(axis=0) for scores in tasks], axis=0)


def probability_of_improvement(ours: Tasks, theirs: Tasks) -> float:
    """How likely a run of ours beats one of theirs on the same task (Mann-Whitney's U); a draw counts half."""
    return float(np.mean([_win_share(a, b) for a, b in zip(ours, theirs, strict=True)]))


def improvement_interval(ours: Tasks, theirs: Tasks, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The 95 % interval of the probability of improvement; the runs of both sides are redrawn."""
    generator = np.random.default_rng(seed)
    pairs = ((_redrawn(ours, generator), _redrawn(theirs, generator)) for _ in range(resamples))
    return _percentiles([probability_of_improvement(*pair) for pair in pairs])


def _win_share(ours: Array, theirs: Array) -> float:
    difference = ours[:, None] - theirs[None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _redrawn(tasks: Tasks, generator: np.random.Generator) -> list[Array]:
    return [scores[generator.integers(len(scores), size=len(scores))] for scores in tasks]


def _percentiles(statistics: Sequence[float]) -> Interval:
    low, high = np.percentile(statistics, [2.5, 97.5])
    return Interval(float(low), float(high))
