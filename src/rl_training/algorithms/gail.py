"""Generative Adversarial Imitation Learning (Ho & Ermon, 2016, arXiv:1606.03476) with PPO as the generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.params import OF_READING
from rl_training.algorithms.ppo import PPO, PPOParams
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


class GAILParams(PPOParams):
    demonstrations: str | None = Field(None, description="a file, the name of a packaged one, or minari:DATASET")
    imitation_reward: Literal["softplus", "logit", "logsigmoid"] = Field(
        "softplus", description="what a logit of the discriminator pays"
    )
    discriminator_learning_rate: PositiveFloat = Field(3e-4, description="step size of the discriminator")
    discriminator_entropy_coef: float = Field(1e-3, ge=0, description="weight of its entropy bonus")
    discriminator_updates: PositiveInt = Field(4, description="discriminator steps on each rollout")
    discriminator_batch: PositiveInt = Field(256, description="rows of the expert, and of the policy, in each")
    spectral_norm: bool = Field(True, description="bounds the slope of the discriminator")
    clone_updates: int = Field(0, ge=0, description="behaviour-cloning steps before the first update")
    clone_learning_rate: PositiveFloat = Field(1e-3, description="step size of behaviour cloning")
    normalize_reward: bool = True

    def idle(self) -> dict[str, str]:
        """The discriminator reads observations for itself, whatever the policy is."""
        return {name: why for name, why in super().idle().items() if name not in OF_READING}


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

    params: GAILParams

    def __init__(self, policy: ActorCritic, discriminator: Discriminator, params: GAILParams) -> None:
        super().__init__(policy, params)
        self.discriminator = discriminator
        self.discriminator_optimizer = FlatOptimizer(discriminator.parameters(), eps=1e-8, kind="adam")

    def discriminator_update(self, expert: Batch, policy: Batch) -> UpdateResult:
        """One step on as many rows of the expert as of the policy; actions are what the environment executes."""
        loss = discriminator_loss(
            self.discriminator(expert["obs"], expert["actions"]),
            self.discriminator(policy["obs"], policy["actions"]),
            entropy_coef=self.params.discriminator_entropy_coef,
        )
        rate = self.params.discriminator_learning_rate
        self.discriminator_optimizer.step(loss.total, learning_rate=rate, max_grad_norm=None)
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
        rate = self.params.clone_learning_rate
        self.optimizer.step(loss, learning_rate=rate, max_grad_norm=self.params.max_grad_norm)
        return UpdateResult({"bc_loss": loss.detach()})

    @torch.no_grad()
    def rewards(self, obs: Any, actions: Tensor) -> Tensor:
        """Imitation rewards of rows."""
        self.discriminator.eval()  # no power iteration of the spectral norm while judging
        logits = self.discriminator(obs, actions)
        self.discriminator.train()
        return IMITATION_REWARDS[self.params.imitation_reward](logits)

    def is_finite(self) -> bool:
        return super().is_finite() and self.discriminator_optimizer.is_finite()
