"""Generative Adversarial Imitation Learning (Ho & Ermon, 2016, arXiv:1606.03476) with PPO as the generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.ppo import PPO
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.discriminator import Discriminator

# The reward of a logit that is high where the expert is. `softplus` = −log(1 − D), the usual one, is always positive:
# where episodes may end, a policy is paid for living on. `logsigmoid` = log D is always negative and pays for ending
# early; so does `logit` once the discriminator wins, since the policy's own steps have negative logits; it does not
# flatten out far from the expert.
IMITATION_REWARDS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": lambda logits_expert_is_high: logits_expert_is_high,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
}


class DiscriminatorLoss(NamedTuple):
    total: Tensor
    expert_accuracy: Tensor
    policy_accuracy: Tensor


def discriminator_loss(expert_logits: Tensor, policy_logits: Tensor, *, entropy_coef: float) -> DiscriminatorLoss:
    """Binary cross-entropy with the expert as 1, less a bonus for the entropy of the Bernoulli (Ho & Ermon's code)."""
    logits = torch.cat([expert_logits, policy_logits])
    labels = torch.cat([torch.ones_like(expert_logits), torch.zeros_like(policy_logits)])
    error = F.binary_cross_entropy_with_logits(logits, labels)
    entropy = (F.softplus(logits) - logits.sigmoid() * logits).mean()
    return DiscriminatorLoss(
        error - entropy_coef * entropy, (expert_logits > 0).float().mean(), (policy_logits < 0).float().mean()
    )


def behaviour_cloning_loss(policy: ActorCritic, batch: Batch) -> Tensor:
    """Negative log-likelihood of the expert's actions, which are in the policy's own terms."""
    return -policy.evaluate_actions(batch["obs"], batch["actions"]).logprobs.mean()


class GAIL(PPO):
    """PPO whose rewards come from a discriminator."""

    state_parts = (*PPO.state_parts, "discriminator", "discriminator_optimizer")

    def __init__(
        self,
        policy: ActorCritic,
        discriminator: Discriminator,
        *,
        discriminator_learning_rate: float,
        discriminator_entropy_coef: float,
        imitation_reward: str,
        **options: Any,
    ) -> None:
        super().__init__(policy, **options)
        self.discriminator = discriminator
        self.discriminator_optimizer = FlatOptimizer(
            discriminator.parameters(), learning_rate=discriminator_learning_rate, eps=1e-8
        )
        self.discriminator_entropy_coef = discriminator_entropy_coef
        self.imitation_reward = imitation_reward

    @property
    def discriminator_learning_rate(self) -> float:
        return self.discriminator_optimizer.learning_rate

    @discriminator_learning_rate.setter
    def discriminator_learning_rate(self, value: float) -> None:
        self.discriminator_optimizer.learning_rate = value

    def discriminator_update(self, expert: Batch, policy: Batch) -> UpdateResult:
        """One step on as many rows of the expert as of the policy; actions are what the environment executes."""
        loss = discriminator_loss(
            self.discriminator(expert["obs"], expert["actions"]),
            self.discriminator(policy["obs"], policy["actions"]),
            entropy_coef=self.discriminator_entropy_coef,
        )
        self.discriminator_optimizer.step(loss.total, max_grad_norm=None)
        return UpdateResult(
            {
                "discriminator_loss": loss.total.detach(),
                "expert_accuracy": loss.expert_accuracy,
                "policy_accuracy": loss.policy_accuracy,
            }
        )

    def clone_update(self, batch: Batch) -> UpdateResult:
        """One step of behaviour cloning."""
        loss = behaviour_cloning_loss(self.policy, batch)
        self.optimizer.step(loss, max_grad_norm=self.max_grad_norm)
        return UpdateResult({"bc_loss": loss.detach()})

    @torch.no_grad()
    def rewards(self, obs: Any, actions: Tensor) -> Tensor:
        """Imitation rewards of rows."""
        self.discriminator.eval()  # no power iteration of the spectral norm while judging
        logits = self.discriminator(obs, actions)
        self.discriminator.train()
        return IMITATION_REWARDS[self.imitation_reward](logits)

    def is_finite(self) -> bool:
        return super().is_finite() and self.discriminator_optimizer.is_finite()
