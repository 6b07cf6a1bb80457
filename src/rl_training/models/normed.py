"""Dreamer's layers: linear, RMSNorm, SiLU (Hafner et al., 2025), and linear layers in diagonal blocks."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.replaceable import replaceable

NORM_EPS = 1e-4
TRUNCATED_STD = 0.87962566  # of a standard normal cut off at two deviations


def scaled_normal_(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    """A truncated normal whose deviation is `scale`/√fan_in."""
    std = scale / math.sqrt(fan_in) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2.0 * std, b=2.0 * std)


def linear(in_features: int, out_features: int, *, scale: float = 1.0) -> nn.Linear:
    """A linear layer; with `scale` 0 it answers 0 until it has learned."""
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

    @replaceable
    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(-1, self.shape)
        inverse = groups.square().mean(-1, keepdim=True).add(NORM_EPS).rsqrt()
        return F.silu((groups * inverse).flatten(-2) * self.scale)


class ChannelActivation(NormedActivation):
    """SiLU(RMSNorm(x)) over the channels of each pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


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
