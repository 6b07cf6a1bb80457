"""Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.actor_critic import BATCH_SIZE, ActorCriticAlgorithm, ActorCriticParams, idle_beside
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.models.actor_critic import Evaluated
from rl_training.ops.losses import approx_kl, clip_fraction, clipped_surrogate, clipped_value_loss
from rl_training.replaceable import replaceable


class PPOParams(ActorCriticParams):
    spellings: ClassVar[dict[str, str]] = {**ActorCriticParams.spellings, "n_epochs": "update_epochs"}
    clip_coef: float = Field(0.2, ge=0, description="how far the probability ratio may leave 1")
    clip_value_loss: bool = Field(False, description="clip the value's step by clip_coef, too")
    update_epochs: PositiveInt = Field(4, description="passes over each rollout")
    num_minibatches: PositiveInt = Field(4, description="parts of each pass")
    batch_size: PositiveInt | None = Field(None, description=BATCH_SIZE)
    target_kl: PositiveFloat | None = Field(None, description="stop the epochs once approx_kl exceeds it")

    def idle(self) -> dict[str, str]:
        return super().idle() | idle_beside(self.batch_size)


class PPOLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    log_ratio: Tensor


def ppo_loss(
    evaluated: Evaluated, batch: Batch, *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value_loss: bool
) -> PPOLoss:
    """Clipped surrogate, value error and entropy bonus of one minibatch; its advantages are taken as they are."""
    log_ratio = evaluated.logprobs - batch["behavior_logprobs"]
    policy_loss = clipped_surrogate(log_ratio, batch["advantages"], clip_coef)
    value_clip = clip_coef if clip_value_loss else None
    value_loss = clipped_value_loss(evaluated.values, batch["values"], batch["returns"], value_clip)
    entropy = evaluated.entropy.mean()
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy
    return PPOLoss(total, policy_loss, value_loss, entropy, log_ratio)


class PPO(ActorCriticAlgorithm):
    """One gradient step on one minibatch per `update`."""

    params: PPOParams

    @replaceable
    def update(self, batch: Batch) -> UpdateResult:
        return self.descend(self.policy.evaluate_actions(batch["obs"], batch["actions"]), batch)

    def descend(self, evaluated: Evaluated, batch: Batch) -> UpdateResult:
        """The gradient step, given what the policy says of the batch's rows now."""
        loss = self.loss(evaluated, {**batch, "advantages": self.usable(batch["advantages"])})
        grad_norm = self.descend_along(loss.total)
        log_ratio = loss.log_ratio.detach()
        return UpdateResult(
            {
                "loss": loss.total.detach(),
                "policy_loss": loss.policy_loss.detach(),
                "value_loss": loss.value_loss.detach(),
                "entropy": loss.entropy.detach(),
                "approx_kl": approx_kl(log_ratio),
                "clip_fraction": clip_fraction(log_ratio, self.params.clip_coef),
                "grad_norm": grad_norm,
            }
        )

    def loss(self, evaluated: Evaluated, batch: Batch) -> PPOLoss:
        params = self.params
        return ppo_loss(
            evaluated,
            batch,
            clip_coef=params.clip_coef,
            ent_coef=params.ent_coef,
            vf_coef=params.vf_coef,
            clip_value_loss=params.clip_value_loss,
        )
