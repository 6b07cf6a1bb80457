"""Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.ops.fused import ppo_gradient
from rl_training.ops.losses import approx_kl, clip_fraction, clipped_surrogate, clipped_value_loss, normalize

COLUMNS = ("behavior_logprobs", "values", "advantages", "returns")


class PPOLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    log_ratio: Tensor


def ppo_loss(
    evaluated: Evaluated,
    batch: Batch,
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    clip_value_loss: bool = False,
    normalize_advantages: bool = True,
) -> PPOLoss:
    """Clipped surrogate, value error and entropy bonus of one minibatch."""
    advantages = normalize(batch["advantages"]) if normalize_advantages else batch["advantages"]
    log_ratio = evaluated.logprobs - batch["behavior_logprobs"]
    policy_loss = clipped_surrogate(log_ratio, advantages, clip_coef)
    value_clip = clip_coef if clip_value_loss else None
    value_loss = clipped_value_loss(evaluated.values, batch["values"], batch["returns"], value_clip)
    entropy = evaluated.entropy.mean()
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy
    return PPOLoss(total, policy_loss, value_loss, entropy, log_ratio)


class PPO(ActorCriticAlgorithm):
    """One gradient step on one minibatch per `update`."""

    def __init__(
        self,
        policy: ActorCritic,
        *,
        clip_coef: float,
        clip_value_loss: bool = False,
        normalize_advantages: bool = True,
        target_kl: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(policy, **options)
        self.clip_coef = clip_coef
        self.clip_value_loss = clip_value_loss
        self.normalize_advantages = normalize_advantages
        self.target_kl = target_kl
        # A subclass with another loss takes the plain path.
        self.fused = policy.fused if type(self).loss is PPO.loss else None

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        if self.fused is not None and (inputs := self.fused.inputs(batch["obs"])) is not None:
            return self.descend_fused(self.fused, inputs, batch, ppo_gradient, COLUMNS, self._loss_options())
        return self.descend(self.policy.evaluate_actions(batch["obs"], batch["actions"]), batch)

    def descend(self, evaluated: Evaluated, batch: Batch) -> UpdateResult:
        """The gradient step, given what the policy says of the batch's rows now."""
        loss = self.loss(evaluated, batch)
        grad_norm = self.optimizer.step(loss.total, max_grad_norm=self.max_grad_norm)
        log_ratio = loss.log_ratio.detach()
        return UpdateResult(
            {
                "loss": loss.total.detach(),
                "policy_loss": loss.policy_loss.detach(),
                "value_loss": loss.value_loss.detach(),
                "entropy": loss.entropy.detach(),
                "approx_kl": approx_kl(log_ratio),
                "clip_fraction": clip_fraction(log_ratio, self.clip_coef),
                "grad_norm": grad_norm,
            }
        )

    def loss(self, evaluated: Evaluated, batch: Batch) -> PPOLoss:
        return ppo_loss(evaluated, batch, **self._loss_options())

    def _loss_options(self) -> dict[str, Any]:
        names = ("clip_coef", "ent_coef", "vf_coef", "clip_value_loss", "normalize_advantages")
        return {name: getattr(self, name) for name in names}
