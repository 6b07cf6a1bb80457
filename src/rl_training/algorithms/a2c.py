"""Advantage Actor-Critic, the synchronous A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.ops.fused import a2c_gradient
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
        names = ("ent_coef", "vf_coef", "normalize_advantages")
        options = {name: getattr(self, name) for name in names}
        fused = self.policy.fused
        if fused is not None and (inputs := fused.inputs(batch["obs"])) is not None:
            return self.descend_fused(fused, inputs, batch, a2c_gradient, ("advantages", "returns"), options)
        loss = a2c_loss(self.policy.evaluate_actions(batch["obs"], batch["actions"]), batch, **options)
        grad_norm = self.optimizer.step(loss.total, max_grad_norm=self.max_grad_norm)
        metrics = {name: part.detach() for name, part in loss._asdict().items() if name != "total"}
        return UpdateResult({"loss": loss.total.detach(), **metrics, "grad_norm": grad_norm})
