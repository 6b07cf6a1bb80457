"""`Learner`: what is peculiar to an algorithm in training. The loop does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, Stateful, UpdateResult
from rl_training.data.rollout import Rollout
from rl_training.envs.state import generator_state, set_generator_state
from rl_training.envs.types import Spaces
from rl_training.runtime.controls import Control
from rl_training.runtime.params import Params


class Rng:
    """A NumPy generator whose state is part of a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        return generator_state(self.generator)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_generator_state(self.generator, state)


class Learner(Stateful, ABC):
    """Owns the algorithm and turns rollouts into updates."""

    Params: ClassVar[type[Params]]
    controls: ClassVar[tuple[Control, ...]] = ()
    bears_stale_data: ClassVar[bool] = False  # whether rollouts of an older policy may be learned from
    shared_method: ClassVar[str | None] = None  # of the algorithm: a gradient step whose rows learners may share
    state_parts: ClassVar[tuple[str, ...]] = ("algorithm", "rng")

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        self.params = params
        self.spaces = spaces
        self.num_envs = num_envs
        self.rng = Rng(seed)
        self.algorithm = self.build_seeded(params, spaces, seed=seed, device=device)

    @classmethod
    def build_seeded(cls, params: Any, spaces: Spaces, *, seed: int, device: torch.device) -> Any:
        """Weights that depend on the seed alone, whatever random numbers were drawn before."""
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            return cls.build_algorithm(params, spaces)

    @classmethod
    @abstractmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> Algorithm:
        """Only constructs: evaluation, prediction and remote workers call it too."""

    @property
    @abstractmethod
    def rollout_steps(self) -> int:
        """Rows of every environment in a rollout."""

    @abstractmethod
    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        """Yields after every update, so that the loop can meter it and stop early."""
