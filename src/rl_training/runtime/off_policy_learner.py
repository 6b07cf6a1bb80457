"""The base of learners of action values: they draw transitions, and give them the priorities that an update found."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.off_policy import OffPolicyParams
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.options import options_from
from rl_training.models.torsos import TorsoOptions, idle_beside_cnn
from rl_training.runtime.controls import GAMMA, LEARNING_RATE, PRIORITY_BETA, REPLAY_RATIO, TAU, Control
from rl_training.runtime.replay_learner import ReplayLearner

SMALLEST_PRIORITY = 1e-6


class OffPolicyLearner(ReplayLearner):
    Params: ClassVar[type[OffPolicyParams]] = OffPolicyParams
    controls: ClassVar[tuple[Control, ...]] = (LEARNING_RATE, REPLAY_RATIO, GAMMA, TAU, PRIORITY_BETA)
    reads = ()
    priority_alpha = "priority_alpha"
    params: OffPolicyParams
    algorithm: Any
    _can_draw = False

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        return idle_beside_cnn(seen_space(spaces), "activation")

    @classmethod
    def torso_options(cls, params: Any) -> TorsoOptions:
        return options_from(TorsoOptions, params)

    @property
    def has_enough(self) -> bool:
        self._can_draw = super().has_enough and (self._can_draw or self.replay.has_transitions())
        return self._can_draw

    def update(self) -> PrioritizedResult:
        rows, chances = self.replay.draw_transitions(self.params.batch_size, self.rng.generator)
        batch: dict[str, Tree] = self.replay.transitions(rows, n_steps=self.params.n_steps, gamma=self.params.gamma)
        batch["weights"] = self.weights(chances)
        result: PrioritizedResult = self.algorithm.update(to_tensors(batch, self.algorithm.policy.device))
        if self.params.priority_alpha is not None:
            self.replay.set_priorities(rows, result.errors.cpu().numpy() + SMALLEST_PRIORITY)
        return result

    def weights(self, chances: NDArray[np.float64]) -> NDArray[np.float32]:
        """Importance weights of rows that were drawn so many times their equal share (Schaul et al., 2016, §3.4)."""
        weights = chances**-self.params.priority_beta
        return (weights / weights.max()).astype(np.float32)
