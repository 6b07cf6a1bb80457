"""SiLU(RMSNorm(x)) and its gradient, compiled: one pass over each row where torch makes seven.

Arrays are `[R, G, W]`: rows, groups that are normed apart, their width; `scale` is `[G, W]`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats, as_rows, as_tensor, suits_kernels
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import ONE, sigmoid
from rl_training.models.normed import NORM_EPS, ChannelActivation, NormedActivation


@compiled
def forward(x: Floats, scale: Floats, eps: float, output: Floats, inverse: Floats) -> None:
    """`inverse` `[R, G]` is one over the root mean square."""
    rows, groups, width = x.shape
    for r in range(rows):
        for g in range(groups):
            row, factors, out = x[r, g], scale[g], output[r, g]
            squares = np.float32(0.0)
            for i in range(width):
                squares += row[i] * row[i]
            shrink = ONE / np.float32(math.sqrt(squares / np.float32(width) + np.float32(eps)))
            inverse[r, g] = shrink
            for i in range(width):
                scaled = row[i] * shrink * factors[i]
                out[i] = scaled * sigmoid(scaled)


@compiled
def backward(grad: Floats, x: Floats, scale: Floats, inverse: Floats, to_x: Floats, to_scale: Floats) -> None:
    """Adds to `to_scale`, writes `to_x`."""
    rows, groups, width = x.shape
    for r in range(rows):
        for g in range(groups):
            row, factors, out, along, shrink = x[r, g], scale[g], to_x[r, g], to_scale[g], inverse[r, g]
            above, total = grad[r, g], np.float32(0.0)
            for i in range(width):
                normed = row[i] * shrink
                scaled = normed * factors[i]
                gate = sigmoid(scaled)
                slope = above[i] * gate * (ONE + scaled * (ONE - gate))
                along[i] += slope * normed
                out[i] = slope * factors[i]
                total += out[i] * normed
            mean = total / np.float32(width)
            for i in range(width):
                out[i] = (out[i] - row[i] * shrink * mean) * shrink


def normed_silu(x: Tensor, scale: Tensor, shape: tuple[int, int]) -> tuple[Tensor, tuple[Floats, Floats, Floats]]:
    """(output, what the gradient needs: input, scale, inverse root mean square of each group)."""
    rows, scales = as_rows(x, -1, *shape), as_rows(scale, *shape)
    output, inverse = np.empty_like(rows), np.empty(rows.shape[:2], np.float32)
    forward(rows, scales, NORM_EPS, output, inverse)
    return as_tensor(output, x.shape), (rows, scales, inverse)


class NormedSiLU(torch.autograd.Function):
    """`normed_silu` as one node of autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shape: tuple[int, int]) -> Tensor:
        output, ctx.given = normed_silu(x, scale, shape)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, scales, inverse = ctx.given
        to_rows, to_scales = np.empty_like(rows), np.zeros_like(scales)
        backward(as_rows(grad, *rows.shape), rows, scales, inverse, to_rows, to_scales)
        return as_tensor(to_rows, grad.shape), as_tensor(to_scales, (-1,)), None


def is_own_activation(module: NormedActivation, x: Tensor) -> bool:
    """Exactly NormedActivation or ChannelActivation, on float32 on the CPU."""
    return type(module) in (NormedActivation, ChannelActivation) and suits_kernels(x)


@replaces(NormedActivation.forward, when=is_own_activation, tolerance=1e-5)
def normed_activation(module: NormedActivation, x: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return NormedSiLU.apply(x, module.scale, module.shape)  # type: ignore[no-untyped-call]
    return normed_silu(x, module.scale, module.shape)[0]
