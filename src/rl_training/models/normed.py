"""Dreamer's layers: linear, RMSNorm, SiLU (Hafner et al., 2025), and linear layers in diagonal blocks."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NORM_EPS = 1e-4
TRUNCATED_STD = 0.87962566  # of a standard normal cut off at two deviations


def scaled_normal_(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    """A truncated normal whose deviation is `scale`/√fan_in."""
    std = scale / math.sqrt(fan_in) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2.0 * std, b=2.0 * std)


def linear(in_features: int, out_features: int, *, scale: float = 1.0) -> nn.Linear:
    """With `scale` 0 it answers 0 until it has learned."""
    layer = nn.Linear(in_features, out_features)
    nn.init.zeros_(layer.bias)
    if scale:
        scaled_normal_(layer.weight, in_features, scale)
    else:
        nn.init.zeros_(layer.weight)
    return layer


class NormedActivation(nn.Module):
    """SiLU(RMSNorm(x)) over the last axis; with `groups`, over each of so many parts of it."""

    def __init__(self, features: int, groups: int = 1) -> None:
        super().__init__()
        self.shape = (groups, features // groups)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32:
            groups = x.unflatten(-1, self.shape)
            inverse = groups.square().mean(-1, keepdim=True).add(NORM_EPS).rsqrt()
            return F.silu((groups * inverse).flatten(-2) * self.scale)
        if torch.is_grad_enabled():
            return NormedSiLU.apply(x, self.scale, self.shape)
        return normed_silu(x, self.scale, self.shape)[0]


def normed_silu(x: Tensor, scale: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """(output, input, inverse root mean square of each group), in one compiled pass."""
    from rl_training.models import normed_kernels

    x = x.detach().contiguous()
    output, inverse = torch.empty_like(x), x.new_empty(x.numel() // shape[1])
    normed_kernels.forward(_rows(x, shape), _rows(scale, shape)[0], NORM_EPS, _rows(output, shape), inverse.numpy())
    return output, x, inverse


class NormedSiLU(torch.autograd.Function):
    """`normed_silu` as one node of autograd, its gradient compiled too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shape: tuple[int, int]) -> Tensor:
        output, x, inverse = normed_silu(x, scale, shape)
        ctx.shape = shape
        ctx.save_for_backward(x, scale, inverse)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        from rl_training.models import normed_kernels

        (x, scale, inverse), shape = ctx.saved_tensors, ctx.shape
        to_x, to_scale = torch.empty_like(x), torch.zeros_like(scale)
        given = _rows(grad.contiguous(), shape), _rows(x, shape), _rows(scale, shape)[0], inverse.numpy()
        normed_kernels.backward(*given, _rows(to_x, shape), _rows(to_scale, shape)[0])
        return to_x, to_scale, None


def _rows(x: Tensor, shape: tuple[int, int]) -> NDArray[np.float32]:
    """As `[R, G, W]`."""
    return x.detach().view(-1, *shape).numpy()


class NormedMLP(nn.Module):
    """Hidden layers of linear, RMSNorm and SiLU; with `out_features`, a linear layer after them."""

    def __init__(
        self, in_features: int, units: int, layers: int, out_features: int | None = None, *, out_scale: float = 1.0
    ) -> None:
        super().__init__()
        widths = [in_features, *[units] * layers]
        self.linears = nn.ModuleList(linear(n_in, n_out) for n_in, n_out in pairwise(widths))
        self.activations = nn.ModuleList(NormedActivation(units) for _ in range(layers))
        self.last = None if out_features is None else linear(units, out_features, scale=out_scale)
        self.out_features = out_features or units

    def forward(self, x: Tensor) -> Tensor:
        for layer, activate in zip(self.linears, self.activations, strict=True):
            x = activate(layer(x))
        return x if self.last is None else self.last(x)


class BlockLinear(nn.Module):
    """`[N, blocks, in]` → `[N, blocks, out]`: a linear layer for each block."""

    def __init__(self, blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(blocks, 1, out_features))
        scaled_normal_(self.weight, in_features)

    def forward(self, x: Tensor) -> Tensor:
        if len(self.weight) == 1:
            return torch.addmm(self.bias[0], x[:, 0], self.weight[0]).unsqueeze(1)
        return torch.baddbmm(self.bias, x.transpose(0, 1), self.weight).transpose(0, 1)
