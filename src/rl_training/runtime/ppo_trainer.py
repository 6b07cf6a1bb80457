"""PPO: epochs of shuffled minibatches over each rollout, until the policy has moved far enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.ppo import PPO, PPOParams
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import CLIP_COEF, TARGET_KL
from rl_training.runtime.manager import trainer_for


class PPOLearner(ActorCriticLearner):
    Params: ClassVar[type[PPOParams]] = PPOParams
    controls = (*ActorCriticLearner.controls, CLIP_COEF, TARGET_KL)
    algorithm_class: ClassVar[type[ActorCriticAlgorithm]] = PPO
    params: PPOParams
    algorithm: PPO

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        self.note_values(batch)
        yield from self.epochs(batch)
        self.update_statistics(rollout)

    def epochs(self, batch: dict[str, Tree]) -> Iterator[UpdateResult]:
        for _ in range(self.params.update_epochs):
            for minibatch in self.minibatches(batch, self.number_of_minibatches(batch)):
                result = self.update(minibatch)
                yield result
                if self.params.target_kl is not None and result.metrics["approx_kl"] > self.params.target_kl:
                    return


train_ppo = trainer_for(PPOLearner)
