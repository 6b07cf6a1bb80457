"""A network that lags behind another."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

from rl_training.algorithms.base import Stateful

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class TargetNetwork(Stateful, Generic[NetworkT]):
    """A frozen copy that catches up with its original, at intervals or a little after every update."""

    state_parts = ("network",)
    state_scalars = ("age",)

    def __init__(self, original: NetworkT) -> None:
        self.network = copy.deepcopy(original).requires_grad_(False)
        self._parameters = tuple(self.network.parameters())
        self.age = 0  # updates of the original since the last copy

    def copy_every(self, interval: int, original: NetworkT) -> None:
        """Copies the original when `interval` of its updates have passed; call it after each of them."""
        if self._is_due(interval):
            self.network.load_state_dict(original.state_dict())

    def average_every(self, interval: int, rate: float, original: NetworkT) -> None:
        """Moves by a share of the way when `interval` updates have passed; call it after each of them."""
        if self._is_due(interval):
            self.average(rate, original)

    def _is_due(self, interval: int) -> bool:
        self.age = 0 if self.age + 1 >= interval else self.age + 1
        return self.age == 0

    @torch.no_grad()
    def average(self, rate: float, original: NetworkT) -> None:
        """Moves by a share of the way to the original; to be called after each of its updates."""
        torch._foreach_lerp_(self._parameters, tuple(original.parameters()), rate)
