"""SAC (Haarnoja et al., 2018, arXiv:1812.05905), also for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, field_validator
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm, Batch
from rl_training.algorithms.noise import NoiseStream
from rl_training.algorithms.off_policy import CriticParams
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.models.actors import Actor, Candidates
from rl_training.models.critics import Critics
from rl_training.ops.q_learning import quantile_huber, truncated_pool
from rl_training.replaceable import replaceable


class SACParams(CriticParams):
    ent_coef: float | None = Field(
        None, ge=0, description="weight of the entropy; default, or auto: learned, so that it reaches target_entropy"
    )
    initial_ent_coef: PositiveFloat = Field(1.0, description="where a learned ent_coef begins")
    target_entropy: float | None = Field(
        None, description="default: minus the number of action's coordinates, or half the highest of Discrete actions"
    )

    @field_validator("ent_coef", mode="before")
    @classmethod
    def _auto(cls, value: Any) -> Any:
        return None if value == "auto" else value


class Temperature(nn.Module):
    """The learned weight of the entropy, by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([initial]).log())

    def forward(self) -> Tensor:
        return self.log.detach().exp().squeeze(0)


def soft_values(values: Tensor, candidates: Candidates, ent_coef: Tensor | float) -> Tensor:
    """Σ π(a|s) (Q(s, a) − α log π(a|s)), over the candidates `[N, K]`."""
    return (candidates.weights * (values - ent_coef * candidates.logprobs)).sum(-1)


def entropy(candidates: Candidates) -> Tensor:
    return -(candidates.weights * candidates.logprobs).sum(-1)


class ActorThroughCritics(Algorithm):
    """An actor, critics and their lagging copy: each `update` moves the critics, and now and then the actor."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "critics", "optimizer", "critic_optimizer", "target", "noise")
    state_scalars: ClassVar[tuple[str, ...]] = ("updates",)
    climbed_critics: ClassVar[int | None] = None  # how many the actor climbs, the least of them; None: all
    policy: Any

    params: Any

    def __init__(self, policy: Actor, critics: Critics, params: Any) -> None:
        self.policy = policy
        self.critics = critics
        self.params = params
        self.optimizer = FlatOptimizer(policy.parameters(), eps=params.adam_eps, kind="adam")
        self.critic_optimizer = FlatOptimizer(critics.parameters(), eps=params.adam_eps, kind="adam")
        self.target = None if params.batch_renorm else TargetNetwork(critics)
        self.noise = NoiseStream()
        self.updates = 0

    def is_finite(self) -> bool:
        return self.optimizer.is_finite() and self.critic_optimizer.is_finite()

    def update(self, batch: Batch) -> PrioritizedResult:
        metrics, errors = self.update_critics(batch)
        self.updates += 1
        if self.updates % self.params.policy_interval == 0:
            metrics |= self.update_policy(batch)
        self.follow()
        return PrioritizedResult(metrics, errors=errors)

    def follow(self) -> None:
        """Moves what lags behind."""
        if self.target is not None:
            self.target.average_every(self.params.target_update_interval, self.params.tau, self.critics)

    @replaceable
    def update_critics(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """Metrics, and how far off each row was."""
        values, targets = self.values_and_targets(batch)
        losses, errors = self.critic_losses(values, targets)
        loss = (batch["weights"] * losses).mean()
        self.critic_optimizer.step(loss, learning_rate=self.params.learning_rate, max_grad_norm=None)
        return {"critic_loss": loss.detach(), "q_mean": values.detach().mean(), "td_error": errors.mean()}, errors

    def critic_losses(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """`values` `[E, N, Z]` against `targets` `[N, Z']`: the losses of each row, and its error."""
        if values.shape[-1] > 1:
            losses = quantile_huber(values, targets).sum(0)
            return losses, losses.detach()
        errors = values.squeeze(-1) - targets.squeeze(-1)
        return 0.5 * errors.square().sum(0), errors.detach().abs().mean(0)

    def values_and_targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """`[E, N, Z]` and `[N, Z']`: the critics follow a lagging copy, or themselves where they are renormalised."""
        if self.target is not None:
            targets = self.targets(batch)
            return self.critics.of_replayed(batch["obs"], batch["actions"], self.noise.generator), targets
        with torch.no_grad():
            candidates = self.next_candidates(batch["next_obs"])
        values, following = self.critics.jointly(batch, candidates.actions, self.noise.generator)
        return values, self.discounted(batch, candidates, following)

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """The targets by the lagging copy."""
        assert self.target is not None
        candidates = self.next_candidates(batch["next_obs"])
        outputs = self.target.network(batch["next_obs"], candidates.actions, self.noise.generator)
        return self.discounted(batch, candidates, outputs)

    @torch.no_grad()
    def discounted(self, batch: Batch, candidates: Candidates, outputs: Tensor) -> Tensor:
        """`[N, Z']`: r + γⁿ of what the next state is worth, as a mean or as the quantiles that remain (TQC)."""
        dropped = self.params.dropped_quantiles * self.params.num_critics
        if outputs.shape[-1] > 1:
            worth = truncated_pool(outputs.squeeze(-2), dropped) - self.entropy_weight() * candidates.logprobs
        else:
            worth = soft_values(outputs.squeeze(-1).amin(0), candidates, self.entropy_weight()).unsqueeze(-1)
        return batch["rewards"].unsqueeze(-1) + batch["discounts"].unsqueeze(-1) * worth

    def next_candidates(self, obs: Any) -> Candidates:
        return self.smoothed(self.next_actor.candidates(obs, self.noise.generator))

    @property
    def next_actor(self) -> Actor:
        """The actor whose actions the targets value."""
        return self.policy

    def smoothed(self, candidates: Candidates) -> Candidates:
        """The candidates that the targets value, made of those that `next_actor` offers."""
        return candidates

    @replaceable
    def update_policy(self, batch: Batch) -> dict[str, Tensor]:
        candidates = self.policy.candidates(batch["obs"], self.noise.generator)
        self.critics.requires_grad_(False)  # through them, and not into them
        values = self.policy_values(self.critics(batch["obs"], candidates.actions))
        loss = -soft_values(values, candidates, self.entropy_weight()).mean()
        self.optimizer.step(loss, learning_rate=self.params.learning_rate, max_grad_norm=None)
        self.critics.requires_grad_(True)
        return {"policy_loss": loss.detach()} | self.after_policy(candidates)

    def policy_values(self, outputs: Tensor) -> Tensor:
        """`[N, K]`: the value of each candidate that the actor climbs."""
        climbed = outputs[: self.climbed_critics]
        return climbed.mean((0, -1)) if climbed.shape[-1] > 1 else climbed.squeeze(-1).amin(0)

    def after_policy(self, candidates: Candidates) -> dict[str, Tensor]:
        return {}

    def entropy_weight(self) -> Tensor | float:
        return 0.0


class SAC(ActorThroughCritics):
    """Maximises the return and the entropy, whose weight may be learned."""

    state_parts: ClassVar[tuple[str, ...]] = (
        *ActorThroughCritics.state_parts,
        "temperature",
        "temperature_optimizer",
    )
    params: SACParams

    def __init__(self, policy: Actor, critics: Critics, params: SACParams) -> None:
        super().__init__(policy, critics, params)
        self.temperature = Temperature(params.initial_ent_coef)
        self.temperature_optimizer = FlatOptimizer(self.temperature.parameters(), eps=params.adam_eps, kind="adam")

    def entropy_weight(self) -> Tensor | float:
        return self.temperature() if self.params.ent_coef is None else self.params.ent_coef

    def after_policy(self, candidates: Candidates) -> dict[str, Tensor]:
        """Moves the temperature towards the target entropy (eq. 18, of the logarithm as everybody does it)."""
        found = entropy(candidates).detach().mean()
        weight = self.entropy_weight()
        if self.params.ent_coef is None:
            # The slope of log α · (entropy − target), which needs no autograd.
            self.temperature_optimizer.grad.fill_(found - self.target_entropy)
            self.temperature_optimizer.apply_gradient(learning_rate=self.params.learning_rate, max_grad_norm=None)
        return {"entropy": found, "ent_coef": torch.as_tensor(weight)}

    @property
    def target_entropy(self) -> float:
        chosen = self.params.target_entropy
        return self.policy.target_entropy if chosen is None else chosen
