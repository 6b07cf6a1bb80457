"""TRPO: one bounded step of the policy on each rollout, then passes of minibatches for the critic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.trpo import TRPO, TRPOParams
from rl_training.data.rollout import Rollout
from rl_training.models.actor_critic import PolicyOptions
from rl_training.runtime.actor_critic_learner import OF_RND, ActorCriticLearner
from rl_training.runtime.controls import (
    CG_DAMPING,
    ENT_COEF,
    GAE_LAMBDA,
    GAMMA,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    TARGET_KL,
)
from rl_training.runtime.manager import trainer_for


class TRPOLearner(ActorCriticLearner):
    Params = TRPOParams
    controls = (LEARNING_RATE, ENT_COEF, GAMMA, GAE_LAMBDA, MAX_GRAD_NORM, *OF_RND, TARGET_KL, CG_DAMPING)
    algorithm_class = TRPO
    policy_parts = ("distribution", "head", "actor_torso", "critic_torso", "value_head")
    params: TRPOParams
    algorithm: TRPO

    @classmethod
    def model_options(cls, params: Any) -> PolicyOptions:
        return replace(super().model_options(params), share_torso=False)

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        self.note_values(batch)
        yield self.update(self.share(batch))
        of_critic = {name: batch[name] for name in ("obs", "returns")}
        for _ in range(self.params.critic_updates):
            for minibatch in self.minibatches(of_critic, self.number_of_minibatches(batch)):
                yield self.algorithm.peers.averaged(self.algorithm.update_critic(minibatch))
        self.update_statistics(rollout)


train_trpo = trainer_for(TRPOLearner)
