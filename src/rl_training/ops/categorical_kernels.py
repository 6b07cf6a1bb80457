"""`unimix` and `one_hot_sample` compiled, with a gradient; arrays are `[R, K]`, each row a variable."""

from __future__ import annotations

import numpy as np

from rl_training.compiled import compiled
from rl_training.ops.arrays import Floats
from rl_training.ops.elementary import ONE, exponential

ZERO = np.float32(0.0)


@compiled
def unimix(logits: Floats, share: float, probs: Floats) -> None:
    rows, classes = logits.shape
    own, uniform = ONE - np.float32(share), np.float32(share) / np.float32(classes)
    for r in range(rows):
        most = logits[r, 0]
        for i in range(1, classes):
            most = max(most, logits[r, i])
        for i in range(classes):
            probs[r, i] = logits[r, i] - most
    flat = probs.reshape(-1)
    for i in range(len(flat)):  # over all of them at once: rows are shorter than the processor's vectors
        flat[i] = exponential(flat[i])
    for r in range(rows):
        total = ZERO
        for i in range(classes):
            total += probs[r, i]
        for i in range(classes):
            probs[r, i] = probs[r, i] * (own / total) + uniform


@compiled
def unimix_backward(grad: Floats, probs: Floats, share: float, to_logits: Floats) -> None:
    """own · p_i (g_i − Σ_j p_j g_j), where `probs` = own · p + uniform and p is the softmax."""
    rows, classes = probs.shape
    own, uniform = ONE - np.float32(share), np.float32(share) / np.float32(classes)
    for r in range(rows):
        mean = ZERO
        for i in range(classes):
            to_logits[r, i] = probs[r, i] - uniform
            mean += to_logits[r, i] * grad[r, i]
        mean /= own
        for i in range(classes):
            to_logits[r, i] *= grad[r, i] - mean


@compiled
def choose(probs: Floats, uniform: Floats, one_hot: Floats) -> None:
    """As `categorical.one_hot_sample`; `uniform` is `[R]`."""
    rows, classes = probs.shape
    for r in range(rows):
        bound, chosen = ZERO, 0
        for i in range(classes - 1):
            bound += probs[r, i]
            chosen += bound <= uniform[r]
        for i in range(classes):
            one_hot[r, i] = ZERO
        one_hot[r, chosen] = ONE
