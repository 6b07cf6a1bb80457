"""A2C: one gradient step on each rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.a2c import A2C
from rl_training.algorithms.base import UpdateResult
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.runtime.actor_critic_learner import ActorCriticLearner, ActorCriticParams, value_metrics
from rl_training.runtime.workflows import trainer_for


class A2CParams(ActorCriticParams):
    learning_rate: PositiveFloat = 7e-4
    gae_lambda: float = Field(1.0, ge=0, le=1, description="1: n-step returns, as in the paper")
    rollout_steps: PositiveInt = Field(5, description="rows of every environment in a rollout")
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"
    normalize_advantages: bool = False


class A2CLearner(ActorCriticLearner):
    Params = A2CParams
    shared_method = "update"
    params: A2CParams
    algorithm: A2C

    @classmethod
    def build_algorithm(cls, params: A2CParams, spaces: Spaces) -> A2C:
        options = cls.policy_options(params) | {"normalize_advantages": params.normalize_advantages}
        return A2C(cls.build_policy(params, spaces), **options)

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        if not rollout.num_steps:  # short rollouts can be all resets
            return
        batch = self.flat_advantages(rollout)
        result = self.algorithm.update(batch, global_step=global_step)
        yield UpdateResult({**value_metrics(batch), **result.metrics})
        self.observe(rollout)


train_a2c = trainer_for(A2CLearner)
