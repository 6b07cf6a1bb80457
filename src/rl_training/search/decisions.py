"""The answers of grown trees, compiled: the visits, value and action of every root."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled, inlined
from rl_training.search.rules import PUCT, Rule
from rl_training.search.tree import VALUE, VISITS, Ints, Q, SearchTree, improved_logits, root_gumbel_action


@inlined
def _improved_value(tree: SearchTree, b: int, rule: Rule, improved: Floats) -> np.float32:
    """The improved policy's value of a root, Σ π′ · completed q, and its logits, into `improved`.

    Halving visits bad actions as often as good ones, so the mean of the visits is worth less than what is played.
    """
    edges, total, earned = tree.edges[b, 0], np.float32(0.0), np.float32(0.0)
    top, mixed = improved_logits(tree, b, 0, rule, improved)
    for a in range(edges.shape[1]):
        weight = np.float32(math.exp(improved[a] - top))
        total += weight
        earned += weight * (edges[Q, a] if edges[VISITS, a] > 0 else mixed)
    return earned / total


@compiled
def decisions(tree: SearchTree, rule: Rule) -> tuple[Ints, Floats, Floats, NDArray[np.int64], Floats]:
    """Visits, q, value and action of every root; for Gumbel's rule logits + σ(completed q), else nothing of use.

    The action is the most visited one, and the value the mean of the visits; Gumbel's rule takes the best of the most
    visited, and the value of its improved policy.
    """
    roots, count = tree.gumbel.shape
    visits, q = tree.edges[:, 0, VISITS].astype(np.int32), tree.edges[:, 0, Q].copy()
    values = tree.nodes[:, 0, VALUE].copy()
    actions, improved = np.empty(roots, dtype=np.int64), np.empty((roots, count), dtype=np.float32)
    for b in range(roots):
        actions[b] = visits[b].argmax()
        if rule.kind != PUCT:
            actions[b] = root_gumbel_action(tree, b, visits[b, actions[b]], rule)
            values[b] = _improved_value(tree, b, rule, improved[b])
    return visits, q, values, actions, improved
