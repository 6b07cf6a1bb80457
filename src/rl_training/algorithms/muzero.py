"""MuZero (Schrittwieser et al., 2020, arXiv:1911.08265): one gradient step on unrolled windows of replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.models.muzero import PlanningModel, Unrolled
from rl_training.search.policy import SearchPolicy


@dataclass(frozen=True)
class PrioritizedResult(UpdateResult):
    """`errors` `[B]` are |value − target| of the windows' first states."""

    errors: Tensor = field(kw_only=True)


class MuZeroLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    reward_loss: Tensor


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−Σ target log softmax(logits) over the last axis."""
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1)


def unroll_scale(unroll_steps: int, like: Tensor) -> Tensor:
    """[K + 1, 1]: the first state counts fully, each of the K imagined ones as 1 / K."""
    scale = like.new_full((unroll_steps + 1, 1), 1.0 / max(unroll_steps, 1))
    scale[0] = 1.0
    return scale


def muzero_loss(unrolled: Unrolled, batch: Batch, *, model: PlanningModel, value_coef: float) -> MuZeroLoss:
    """Policy, value and reward cross-entropies along the unroll, each window by its importance weight."""
    scale = unroll_scale(len(batch["actions"]), unrolled.policy) * batch["weights"]
    policy = cross_entropy(unrolled.policy, batch["policies"]) * batch["has_state"]
    value = cross_entropy(unrolled.value, model.categorical(batch["value_targets"])) * batch["has_value"]
    reward = cross_entropy(unrolled.reward, model.categorical(batch["reward_targets"])) * batch["has_reward"]
    parts = [(part * scale[-len(part) :]).sum(0).mean() for part in (policy, value, reward)]
    return MuZeroLoss(parts[0] + value_coef * parts[1] + parts[2], *parts)


class MuZero(Algorithm):
    """Holds the model that plans, its optimizer, and a copy that lags behind, which searches replayed states again."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "target")
    policy: SearchPolicy

    def __init__(
        self,
        policy: SearchPolicy,
        *,
        learning_rate: float,
        replay_ratio: float = 0.1,
        reanalyse_fraction: float = 0.0,
        value_coef: float = 0.25,
        max_grad_norm: float = 5.0,
        adam_eps: float = 1e-5,
        target_update_interval: int = 100,
    ) -> None:
        self.policy = policy
        self.optimizer = FlatOptimizer(policy.parameters(), learning_rate=learning_rate, eps=adam_eps)
        self.target = TargetNetwork(policy.model, target_update_interval)
        self.replay_ratio = replay_ratio
        self.reanalyse_fraction = reanalyse_fraction
        self.value_coef = value_coef
        self.max_grad_norm = max_grad_norm

    @property
    def model(self) -> PlanningModel:
        return self.policy.model

    def update(self, batch: Batch, *, global_step: int = 0) -> PrioritizedResult:
        unrolled = self.model.unroll(batch["obs"], batch["actions"])
        total, parts = self.loss(unrolled, batch)
        grad_norm = self.optimizer.step(total, max_grad_norm=self.max_grad_norm)
        self.target.follow(self.model)
        metrics = {name: part.detach() for name, part in parts.items()}
        with torch.no_grad():
            values = self.model.scalar(unrolled.value[0])
            errors = (values - batch["value_targets"][0]).abs()
            metrics |= {"loss": total.detach(), "grad_norm": grad_norm, "value_mean": values.mean()}
        return PrioritizedResult(metrics, errors=errors)

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """(what is minimised, its parts as metrics)."""
        total, *parts = muzero_loss(unrolled, batch, model=self.model, value_coef=self.value_coef)
        return total, dict(zip(MuZeroLoss._fields[1:], parts, strict=True))
