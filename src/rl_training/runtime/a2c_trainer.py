"""A2C: one gradient step on each rollout."""

from __future__ import annotations

from collections.abc import Iterator

from rl_training.algorithms.a2c import A2C, A2CParams
from rl_training.algorithms.base import UpdateResult
from rl_training.data.rollout import Rollout
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.policy import VALUES


class A2CLearner(ActorCriticLearner):
    Params = A2CParams
    reads = (VALUES,)
    algorithm_class = A2C
    params: A2CParams
    algorithm: A2C

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        self.note_values(batch)
        yield self.update(self.share(batch))
        self.update_statistics(rollout)


train_a2c = trainer_for(A2CLearner)
