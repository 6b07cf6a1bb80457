"""`Learner`: what is peculiar to an algorithm in training. The loop does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Stateful, UpdateResult
from rl_training.algorithms.params import LiveParams, Params
from rl_training.data.rollout import Rollout
from rl_training.envs.factory import EnvSpec
from rl_training.envs.kinds import Kind, kind_of
from rl_training.envs.state import generator_state, set_generator_state
from rl_training.envs.types import Spaces
from rl_training.runtime.controls import Control
from rl_training.runtime.params import ParsedParams, parse_params
from rl_training.runtime.policy import EVERYTHING


class Rng:
    """A NumPy generator whose state is part of a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        return generator_state(self.generator)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_generator_state(self.generator, state)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within this, weights are made on the device and depend on the seed alone."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        yield


class Learner(Stateful, ABC):
    """Owns the algorithm and the parameters as they are now, and turns rollouts into updates."""

    Params: ClassVar[type[Params]]
    controls: ClassVar[tuple[Control, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = EVERYTHING  # what it wants to know of the policy that acted; the rest is 0
    bears_stale_data: ClassVar[bool] = False  # whether rollouts of an older policy may be learned from
    bears_one_old_rollout: ClassVar[bool] = False  # or at least of the one before
    shares_updates: ClassVar[bool] = False  # whether several learners may share the rows of an update
    state_parts: ClassVar[tuple[str, ...]] = ("algorithm", "rng")
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = {}  # of environments, for runs without a preset
    env_id: str = ""  # of the environments that it learns in
    params: Any  # a `LiveParams`; subclasses declare the `Params` whose fields it has

    @classmethod
    def defaults_for(cls, spaces: Spaces, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The defaults of a run without a preset in environments with the spaces, beside the user's own parameters."""
        return cls.defaults_by_kind.get(kind_of(spaces), {})

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        self.params = LiveParams(params)
        self.spaces = spaces
        self.num_envs = num_envs
        self.rng = Rng(seed)
        self.algorithm = self.build_seeded(self.params, spaces, seed=seed, device=device)
        self._notes: dict[str, float | Tensor] = {}

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, horizon: int | None) -> ParsedParams:
        """A user's keys as parameters and controls; a ConfigError has one line for each problem."""
        return parse_params(cls.Params, cls.controls, raw, horizon=horizon)

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        """Names of parameters that have no effect in these spaces, and why."""
        return {}

    @classmethod
    def build_seeded(cls, params: Any, spaces: Spaces, *, seed: int, device: torch.device) -> Any:
        """Builds weights that depend on the seed alone, whatever random numbers were drawn before."""
        with seeded(seed, device):
            return cls.build_algorithm(params, spaces)

    @classmethod
    @abstractmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> Algorithm:
        """Only constructs: evaluation, prediction and remote workers call it too."""

    def meet(self, spec: EnvSpec) -> None:
        """Learns which environments the rollouts will come from; called once, before the first of them."""

    @property
    @abstractmethod
    def rollout_steps(self) -> int:
        """Rows of every environment in a rollout."""

    @property
    def random_steps(self) -> int:
        """Environment steps at the beginning of a run that act at random."""
        return 0

    @abstractmethod
    def learn(self, rollout: Rollout) -> Iterator[UpdateResult]:
        """Yields after every update, so that the loop can meter it and stop early."""

    def begin_episodes(self) -> None:
        """All environments begin new episodes: what a learner remembers of those that ran is no longer true."""

    def note(self, **metrics: float | Tensor) -> None:
        """Keeps metrics of the rollout that no update has; the loop takes them after the updates."""
        self._notes.update(metrics)

    def take_notes(self) -> dict[str, float | Tensor]:
        notes, self._notes = self._notes, {}
        return notes
