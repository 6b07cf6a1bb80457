"""Chance as an input: random numbers of any kind, made from uniform ones that somebody gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SMALLEST_CHANCE = 1e-7  # logarithms of what is nearer to 0 or 1 would be infinite in single precision


class GivenNoise(TorchFunctionMode):
    """Makes every random number within it from `noise` `[B, K]`, uniform in [0, 1); without any it only counts K."""

    def __init__(self, noise: Tensor | None = None) -> None:
        super().__init__()
        self.noise, self.used = noise, 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        make = _DRAWS.get(function)
        return function(*args, **(kwargs or {})) if make is None else make(self._take, *args)

    def _take(self, shape: Sequence[Any]) -> Tensor:
        first = self.used
        self.used += math.prod(shape[1:])
        if self.noise is None:
            return torch.rand(*shape)
        return self.noise[:, first : self.used].reshape(*shape).clamp(SMALLEST_CHANCE, 1.0 - SMALLEST_CHANCE)


Take = Callable[[Sequence[Any]], Tensor]


def _exponential(take: Take, like: Tensor) -> Tensor:
    return -torch.log1p(-take(like.shape))


def _normal(take: Take, like: Tensor) -> Tensor:
    """Box and Muller's (1958)."""
    radius, angle = (-2.0 * torch.log1p(-take(like.shape))).sqrt(), 2.0 * math.pi * take(like.shape)
    return radius * angle.cos()


def _rand(take: Take, *shape: Any) -> Tensor:
    return take(shape[0] if isinstance(shape[0], Sequence) else shape)


def _randint(take: Take, high: int, shape: Sequence[Any]) -> Tensor:
    return (take(shape) * high).long()


def _multinomial(take: Take, weights: Tensor, _count: int) -> Tensor:
    return (weights.log() - _exponential(take, weights).log()).argmax(-1, keepdim=True)


_DRAWS: dict[Any, Callable[..., Tensor]] = {
    Tensor.exponential_: _exponential,
    Tensor.normal_: _normal,
    torch.rand: _rand,
    torch.randint: _randint,
    torch.multinomial: _multinomial,
}
