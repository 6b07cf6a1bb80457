"""The formulas of tree search as the papers write them, for one node: arrays are `[A]`, over the node's actions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rl_training.ops.search import SMALLEST_RANGE

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]


def puct_scores(
    q_normalized: Floats, prior: Floats, visits: Ints, *, pb_c_init: float = 1.25, pb_c_base: float = 19652.0
) -> Floats:
    """Q + P · √N / (1 + n) · (c_init + ln((N + c_base + 1) / c_base)) (Schrittwieser et al., 2020, eq. 2).

    N counts the node's own evaluation with the visits of its children: before the first of those, the prior decides.
    """
    total = 1.0 + visits.sum()
    weight = pb_c_init + math.log((total + pb_c_base + 1.0) / pb_c_base)
    return q_normalized + prior * math.sqrt(total) / (1.0 + visits) * weight


def min_max(q: Floats, low: float, high: float, smallest_range: float = SMALLEST_RANGE) -> Floats:
    """Values of a tree whose extremes are `low` and `high`, scaled to [0, 1]."""
    if high < low:  # nothing was backed up yet
        return np.zeros_like(q)
    return np.clip((q - low) / max(high - low, smallest_range), 0.0, 1.0)


def first_play_value(node_value: float, q: Floats, visits: Ints) -> float:
    """The value of an unvisited action: the mean of the node's value and its visited actions' (Ye et al., 2021)."""
    visited = visits > 0
    return float((node_value + q[visited].sum()) / (1 + visited.sum()))


def mixed_value(raw_value: float, prior: Floats, q: Floats, visits: Ints) -> float:
    """The value of the node by its evaluation and its visited actions (Danihelka et al., 2022, eq. 33)."""
    visited = visits > 0
    if not visited.any():
        return raw_value
    weighted = float((prior * q)[visited].sum() / prior[visited].sum())
    total = float(visits.sum())
    return (raw_value + total * weighted) / (1.0 + total)


def completed_q(raw_value: float, prior: Floats, q: Floats, visits: Ints) -> Floats:
    """Q of visited actions, the mixed value of the others, scaled to [0, 1] over the node's actions."""
    completed = np.where(visits > 0, q, mixed_value(raw_value, prior, q, visits))
    low, high = completed.min(), completed.max()
    return (completed - low) / max(high - low, 1e-8)


def sigma(q_completed: Floats, visits: Ints, *, c_visit: float = 50.0, c_scale: float = 0.1) -> Floats:
    """(c_visit + max N) · c_scale · q (Danihelka et al., 2022, eq. 8)."""
    return (c_visit + visits.max()) * c_scale * q_completed


def interior_scores(improved_policy: Floats, visits: Ints) -> Floats:
    """π′ − N / (1 + ΣN): its argmax visits in proportion to the improved policy (Danihelka et al., 2022, eq. 14)."""
    return improved_policy - visits / (1.0 + visits.sum())
