"""The base of all learners with a replay: they fill it, and make as many updates as the steps have earned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.replay import ReplayParams
from rl_training.data.ratio import Ratio
from rl_training.data.replay import StreamReplay
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.runtime.learner import Learner


class ReplayLearner(Learner):
    """Stores every rollout; once there is enough, `update` is called for each update that is due."""

    bears_stale_data = True
    priority_alpha: ClassVar[str | None] = None  # the parameter that says how much priorities decide, if any does
    state_parts = (*Learner.state_parts, "stored_replay", "ratio")
    params: ReplayParams

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        alpha = None if self.priority_alpha is None else getattr(params, self.priority_alpha)
        self.replay = StreamReplay(params.replay_capacity, num_envs, priority_alpha=alpha)
        self.stored_replay = self.replay if params.store_replay else None
        self.ratio = Ratio()
        if self.replay.capacity < max(params.learning_starts, 1):
            rows = f"{num_envs} environments with {self.replay.places} rows each"
            wanted = f"learning_starts waits for {params.learning_starts}"
            raise ConfigError(f"replay_capacity: no update would ever happen; it holds {rows}, and {wanted}")

    @property
    def rollout_steps(self) -> int:
        return self.params.rollout_steps

    @property
    def random_steps(self) -> int:
        return self.params.random_steps

    @property
    def updates_per_step(self) -> float:
        return self.params.replay_ratio  # type: ignore[attr-defined]

    def learn(self, rollout: Rollout) -> Iterator[UpdateResult]:
        self.store(rollout)
        if self.has_enough:
            yield from self.updates(self.ratio(rollout.num_steps, self.updates_per_step))

    def updates(self, count: int) -> Iterator[UpdateResult]:
        """So many updates, each on a draw of its own."""
        for _ in range(count):
            yield self.update()

    def store(self, rollout: Rollout) -> None:
        self.replay.add(rollout)

    @property
    def has_enough(self) -> bool:
        """Tells whether updates may begin."""
        return len(self.replay) >= self.params.learning_starts

    @abstractmethod
    def update(self) -> UpdateResult:
        """One update on what it draws from the replay."""
