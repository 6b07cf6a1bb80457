"""Advantage Actor-Critic, the synchronous A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.ops.losses import clipped_value_loss, normalize


class A2CLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


def a2c_loss(
    evaluated: Evaluated, batch: Batch, *, ent_coef: float, vf_coef: float, normalize_advantages: bool = False
) -> A2CLoss:
    """Policy gradient, value error and entropy bonus of one rollout (Mnih et al., 2016, section 4.3)."""
    advantages = normalize(batch["advantages"]) if normalize_advantages else batch["advantages"]
    policy_loss = -(advantages * evaluated.logprobs).mean()
    value_loss = clipped_value_loss(evaluated.values, batch["values"], batch["returns"], None)
    entropy = evaluated.entropy.mean()
    return A2CLoss(policy_loss + vf_coef * value_loss - ent_coef * entropy, policy_loss, value_loss, entropy)


class A2C(ActorCriticAlgorithm):
    """One gradient step on one whole rollout per `update`: its data are never seen again."""

    def __init__(self, policy: ActorCritic, *, normalize_advantages: bool = False, **options: Any) -> None:
        super().__init__(policy, **options)
        self.normalize_advantages = normalize_advantages

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        loss = a2c_loss(
            self.policy.evaluate_actions(batch["obs"], batch["actions"]),
            batch,
            ent_coef=self.ent_coef,
            vf_coef=self.vf_coef,
            normalize_advantages=self.normalize_advantages,
        )
        grad_norm = self.optimizer.step(loss.total, max_grad_norm=self.max_grad_norm)
        return UpdateResult(
            {
                "loss": loss.total.detach(),
                "policy_loss": loss.policy_loss.detach(),
                "value_loss": loss.value_loss.detach(),
                "entropy": loss.entropy.detach(),
                "grad_norm": grad_norm,
            }
        )
