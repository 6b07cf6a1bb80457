"""Advantage Actor-Critic, the synchronous A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm, ActorCriticParams
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.models.actor_critic import Evaluated
from rl_training.ops.losses import clipped_value_loss
from rl_training.replaceable import replaceable


class A2CParams(ActorCriticParams):
    learning_rate: PositiveFloat = 7e-4
    gae_lambda: float = Field(1.0, ge=0, le=1, description="1: n-step returns, as in the paper")
    rollout_steps: PositiveInt = Field(5, description="rows of every environment in a rollout")
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"
    normalize_advantages: bool = False


class A2CLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


def a2c_loss(evaluated: Evaluated, batch: Batch, *, ent_coef: float, vf_coef: float) -> A2CLoss:
    """Policy gradient, value error and entropy bonus of one rollout (Mnih et al., 2016, section 4.3)."""
    policy_loss = -(batch["advantages"] * evaluated.logprobs).mean()
    value_loss = clipped_value_loss(evaluated.values, batch["values"], batch["returns"], None)
    entropy = evaluated.entropy.mean()
    return A2CLoss(policy_loss + vf_coef * value_loss - ent_coef * entropy, policy_loss, value_loss, entropy)


class A2C(ActorCriticAlgorithm):
    """One gradient step on one whole rollout per `update`: its data are never seen again."""

    params: A2CParams

    @replaceable
    def update(self, batch: Batch) -> UpdateResult:
        evaluated = self.policy.evaluate_actions(batch["obs"], batch["actions"])
        loss = self.loss(evaluated, {**batch, "advantages": self.usable(batch["advantages"])})
        grad_norm = self.descend_along(loss.total)
        metrics = {name: part.detach() for name, part in loss._asdict().items() if name != "total"}
        return UpdateResult({"loss": loss.total.detach(), **metrics, "grad_norm": grad_norm})

    def loss(self, evaluated: Evaluated, batch: Batch) -> A2CLoss:
        return a2c_loss(evaluated, batch, ent_coef=self.params.ent_coef, vf_coef=self.params.vf_coef)
