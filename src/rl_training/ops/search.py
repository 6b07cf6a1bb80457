"""The arithmetic around a tree search: noise at its root, its budget, and the policy that its visits are.

The formulas inside of the trees stand in `search.tree`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

SMALLEST_RANGE = 0.01  # values that differ by less are not stretched over [0, 1]: they are noise


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


def softmax(logits: Floats) -> Floats:
    """Over the last axis; −∞ has probability exactly 0."""
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)
