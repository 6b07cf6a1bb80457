"""TRPO: one bounded step of the policy on each rollout, then passes of minibatches for the critic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.trpo import TRPO
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import PolicyOptions
from rl_training.runtime.actor_critic_learner import ActorCriticLearner, PolicyParams, value_metrics
from rl_training.runtime.controls import (
    CG_DAMPING,
    ENT_COEF,
    GAE_LAMBDA,
    GAMMA,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    TARGET_KL,
)
from rl_training.runtime.workflows import trainer_for


class TRPOParams(PolicyParams):
    learning_rate: PositiveFloat = Field(1e-3, description="of the critic")
    max_grad_norm: PositiveFloat = Field(0.5, description="of the critic")
    target_kl: PositiveFloat = Field(0.01, description="bound on the mean KL of the policy's step")
    cg_iterations: PositiveInt = 10
    cg_damping: float = Field(0.1, ge=0, description="added to the diagonal of the Fisher matrix")
    line_search_shrink: float = Field(0.8, gt=0, lt=1)
    line_search_attempts: PositiveInt = 10
    critic_updates: PositiveInt = Field(10, description="passes over the rollout that fit the critic")
    num_minibatches: PositiveInt = Field(8, description="parts of each of the critic's passes")
    normalize_advantages: bool = True

    @field_validator("share_torso")
    @classmethod
    def _torsos_are_apart(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("share_torso: TRPO needs separate torsos for policy and value; leave it out")
        return value


class TRPOLearner(ActorCriticLearner):
    Params = TRPOParams
    shared_method = "update"  # of the policy; every learner fits the critic alike
    controls = (LEARNING_RATE, ENT_COEF, GAMMA, GAE_LAMBDA, MAX_GRAD_NORM, TARGET_KL, CG_DAMPING)
    params: TRPOParams
    algorithm: TRPO

    @classmethod
    def build_algorithm(cls, params: TRPOParams, spaces: Spaces) -> TRPO:
        return TRPO(cls.build_policy(params, spaces), **cls.policy_options(params))

    @classmethod
    def model_options(cls, params: TRPOParams) -> PolicyOptions:
        return replace(super().model_options(params), share_torso=False)

    @classmethod
    def policy_options(cls, params: TRPOParams) -> dict[str, Any]:
        names = ("optimizer", "adam_eps", "cg_iterations", "line_search_shrink", "line_search_attempts")
        scalars = [control.name for control in cls.controls]
        return {name: getattr(params, name) for name in (*names, *scalars, "normalize_advantages")}

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        yield UpdateResult(value_metrics(batch), num_gradient_steps=0)
        yield self.algorithm.update(batch, global_step=global_step)
        for _ in range(self.params.critic_updates):
            for minibatch in self.minibatches(batch, self.params.num_minibatches):
                yield self.algorithm.update_critic(minibatch)
        self.observe(rollout)


train_trpo = trainer_for(TRPOLearner)
