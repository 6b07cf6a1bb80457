"""A network that lags behind another."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

from torch import nn

from rl_training.algorithms.base import Stateful

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class TargetNetwork(Stateful, Generic[NetworkT]):
    """A frozen copy that catches up with its original every `interval` updates."""

    state_parts = ("network",)
    state_scalars = ("age",)

    def __init__(self, original: NetworkT, interval: int) -> None:
        self.network = copy.deepcopy(original).requires_grad_(False)
        self.interval = interval
        self.age = 0

    def follow(self, original: NetworkT) -> None:
        """To be called after each update of the original."""
        self.age += 1
        if self.age >= self.interval:
            self.network.load_state_dict(original.state_dict())
            self.age = 0
