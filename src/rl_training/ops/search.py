"""The arithmetic of tree search, for one node: arrays are `[A]`, over the node's actions.

`search/` has the same formulas compiled, for many trees at once; its tests hold the two against each other.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

SMALLEST_RANGE = 0.01  # values that differ by less are not stretched over [0, 1]: they are noise


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


def with_root_noise(prior: Floats, noise: Floats, fraction: float) -> Floats:
    """(1 − fraction) · prior + fraction · noise; a fraction of 0 leaves the prior as it is, to the bit.

    Where the prior is 0 an action is not legal and gets no noise: the others share it.
    """
    if fraction == 0.0:
        return prior
    noise = np.where(prior > 0.0, noise, 0.0)
    return (1.0 - fraction) * prior + fraction * noise / noise.sum(-1, keepdims=True)


def visit_policy(visits: Ints, temperature: float = 1.0) -> Floats:
    """N^(1/T) / Σ N^(1/T) over the last axis; temperature 0 is the first of the most visited actions."""
    if temperature == 0.0:
        return np.eye(visits.shape[-1])[visits.argmax(-1)]
    with np.errstate(divide="ignore"):
        logits = np.log(visits / visits.max(-1, keepdims=True)) / temperature
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


def considered_visits(num_considered: int, num_simulations: int) -> Ints:
    """Sequential halving as a table: the visit count that the action chosen at each simulation must have.

    Each phase shares its simulations equally among the actions that are left, then drops the worse half
    (Danihelka et al., 2022, algorithm 1; Karnin et al., 2013).
    """
    if num_considered <= 1:
        return np.arange(num_simulations, dtype=np.int32)
    phases = math.ceil(math.log2(num_considered))
    table: list[int] = []
    visits, left = 0, num_considered
    while len(table) < num_simulations:
        for _ in range(max(1, num_simulations // (phases * left))):
            table += [visits] * left
            visits += 1
        left = max(2, left // 2)
    return np.array(table[:num_simulations], dtype=np.int32)


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


def softmax(logits: Floats) -> Floats:
    """Over the last axis; −∞ has probability exactly 0."""
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def interior_scores(improved_policy: Floats, visits: Ints) -> Floats:
    """π′ − N / (1 + ΣN): its argmax visits in proportion to the improved policy (Danihelka et al., 2022, eq. 14)."""
    return improved_policy - visits / (1.0 + visits.sum())
