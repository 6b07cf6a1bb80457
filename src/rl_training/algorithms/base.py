"""The base of all algorithms: networks, optimizers, parameters that it reads, and an update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.experiment.fitting import loading_part

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class UpdateResult:
    """Metrics may stay 0-dimensional tensors: whoever reads them pays for the conversion."""

    metrics: Mapping[str, float | Tensor]
    num_gradient_steps: int = 1


class Stateful:
    """Checkpoints by naming the parts: each has `state_dict` and `load_state_dict`; scalars are kept as they are.

    A part that is None, an option that is off, has no state.
    """

    state_parts: ClassVar[tuple[str, ...]] = ()
    state_scalars: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name in self.state_parts if (part := getattr(self, name)) is not None}
        return parts | {name: getattr(self, name) for name in self.state_scalars}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self.state_parts:
            if (part := getattr(self, name)) is not None:
                with loading_part(name):
                    part.load_state_dict(state[name])
        for name in self.state_scalars:
            setattr(self, name, state[name])


class Algorithm(Stateful, ABC):
    """Knows no environments, files, schedules or kernels. It reads its parameters and keeps no copy of them."""

    policy: nn.Module
    optimizer: FlatOptimizer
    params: Any

    @abstractmethod
    def update(self, batch: Batch) -> UpdateResult: ...

    def is_finite(self) -> bool:
        """Tells whether all parameters are finite."""
        return self.optimizer.is_finite()
