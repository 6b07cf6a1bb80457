"""The base of learners of action values: they draw transitions, and give them the priorities that an update found."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.off_policy import OffPolicyParams
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.data.hindsight import Hindsight
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors, tree_map
from rl_training.envs.factory import EnvSpec
from rl_training.envs.goals import GoalRewards, has_goals
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.options import options_from
from rl_training.models.torsos import TorsoOptions, idle_beside_cnn, idle_without_cnn
from rl_training.runtime.controls import GAMMA, HER_RATIO, LEARNING_RATE, PRIORITY_BETA, REPLAY_RATIO, TAU, Control
from rl_training.runtime.replay_learner import ReplayLearner

SMALLEST_PRIORITY = 1e-6
ROWS_AT_ONCE = 1_024  # that updates draw together: more would be hardly quicker, and images need much memory


class OffPolicyLearner(ReplayLearner):
    Params: ClassVar[type[OffPolicyParams]] = OffPolicyParams
    controls: ClassVar[tuple[Control, ...]] = (LEARNING_RATE, REPLAY_RATIO, GAMMA, TAU, PRIORITY_BETA, HER_RATIO)
    reads = ()
    priority_alpha = "priority_alpha"
    mlps_have_precision: ClassVar[bool] = False  # or CNNs alone
    params: OffPolicyParams
    algorithm: Any
    _can_draw = False
    _env_spec: EnvSpec | None = None

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        seen = seen_space(spaces)
        without_cnn = {} if cls.mlps_have_precision else idle_without_cnn(seen)
        return idle_beside_cnn(seen, "activation") | without_cnn | cls.idle_without_goals(spaces)

    @classmethod
    def idle_without_goals(cls, spaces: Spaces) -> dict[str, str]:
        without = "on observations without achieved_goal and desired_goal of one shape"
        return {} if has_goals(spaces.observation) else {"her_ratio": without}

    def meet(self, spec: EnvSpec) -> None:
        """Hindsight asks the environment what other goals would have paid; what is wrong with it is found now."""
        self._env_spec = spec
        if self.params.her_ratio:
            _ = self.hindsight

    @cached_property
    def hindsight(self) -> Hindsight:
        assert self._env_spec is not None
        goals = GoalRewards(self._env_spec)
        return Hindsight(self.replay, goals.rewards, goals.terminated if goals.ends_episodes else None)

    @classmethod
    def torso_options(cls, params: Any) -> TorsoOptions:
        return options_from(TorsoOptions, params)

    @property
    def has_enough(self) -> bool:
        self._can_draw = super().has_enough and (self._can_draw or self.replay.has_transitions())
        return self._can_draw

    def updates(self, count: int) -> Iterator[UpdateResult]:
        """Where no errors decide what is replayed, several updates draw their rows at once, which is quicker."""
        if self.params.priority_alpha is not None:
            yield from super().updates(count)
            return
        size = self.params.batch_size
        at_once = max(ROWS_AT_ONCE // size, 1)
        for first in range(0, count, at_once):
            together = min(at_once, count - first)
            parts = tree_map(lambda leaf: leaf.split(size), self.draw(size * together)[1])
            for number in range(together):
                yield self.algorithm.update(tree_map(itemgetter(number), parts))

    def update(self) -> PrioritizedResult:
        rows, batch = self.draw(self.params.batch_size)
        result: PrioritizedResult = self.algorithm.update(batch)
        if self.params.priority_alpha is not None:
            self.replay.set_priorities(rows, result.errors.cpu().numpy() + SMALLEST_PRIORITY)
        return result

    def draw(self, count: int) -> tuple[Rows, dict[str, Tree]]:
        """So many rows of the replay, and their transitions on the device."""
        rows, chances = self.replay.draw_transitions(count, self.rng.generator)
        batch = self.transitions(rows) | {"weights": self.weights(chances)}
        return rows, to_tensors(batch, self.algorithm.policy.device)

    def transitions(self, rows: Rows) -> dict[str, Tree]:
        """The drawn rows as a batch, some of them with other goals (HER)."""
        params = self.params
        if not params.her_ratio:
            return self.replay.transitions(rows, n_steps=params.n_steps, gamma=params.gamma)
        return self.hindsight.transitions(
            rows, n_steps=params.n_steps, gamma=params.gamma, ratio=params.her_ratio, rng=self.rng.generator
        )

    def weights(self, chances: NDArray[np.float64]) -> NDArray[np.float32]:
        """Importance weights of rows that were drawn so many times their equal share (Schaul et al., 2016, §3.4)."""
        weights = chances**-self.params.priority_beta
        return (weights / weights.max()).astype(np.float32)
