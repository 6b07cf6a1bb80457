"""Kernels of categorical variables: one pass over each row where torch makes several.

Arrays are `[R, K]`, each row a variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats, as_rows, as_tensor, suits_kernels
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import ONE, exponential
from rl_training.ops import categorical
from rl_training.ops.categorical import UNIFORM_SHARE

ZERO = np.float32(0.0)


@compiled
def mix(logits: Floats, share: float, probs: Floats) -> None:
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
def mix_backward(grad: Floats, probs: Floats, share: float, to_logits: Floats) -> None:
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
    """Writes one-hot rows; `uniform` is `[R]`."""
    rows, classes = probs.shape
    for r in range(rows):
        bound, chosen = ZERO, 0
        for i in range(classes - 1):
            bound += probs[r, i]
            chosen += bound <= uniform[r]
        for i in range(classes):
            one_hot[r, i] = ZERO
        one_hot[r, chosen] = ONE


class Unimix(torch.autograd.Function):
    """`unimix` as one node of autograd."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        rows = as_rows(logits, -1, logits.shape[-1])
        ctx.probs = np.empty_like(rows)
        mix(rows, UNIFORM_SHARE, ctx.probs)
        return as_tensor(ctx.probs, logits.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        to_logits = np.empty_like(ctx.probs)
        mix_backward(as_rows(grad, *to_logits.shape), ctx.probs, UNIFORM_SHARE, to_logits)
        return as_tensor(to_logits, grad.shape)


@replaces(categorical.unimix, when=suits_kernels, tolerance=1e-6)
def unimix(logits: Tensor) -> Tensor:
    return Unimix.apply(logits)  # type: ignore[no-untyped-call]
