"""APPO: IMPALA with PPO's clipped surrogate and, as an option, a target network.

The surrogate is PPO's (Schulman et al., 2017, arXiv:1707.06347), the traces IMPALA's (Espeholt et al., 2018,
arXiv:1802.01561), the target network IMPACT's (Luo et al., 2020, arXiv:1912.00167).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.impala import IMPALA, VTraceParams
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.data.trees import Tree
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.ops.losses import approx_kl, clip_fraction, clipped_surrogate, clipped_value_loss
from rl_training.replaceable import replaceable


class APPOParams(VTraceParams):
    clip_coef: float = Field(0.2, ge=0, description="how far the probability ratio may leave 1")
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the target network, or to the policy that acted")
    target_update_interval: PositiveInt | None = Field(
        None, description="updates between copies to the target network, which gives V-trace its ratios; default: none"
    )
    update_epochs: PositiveInt = Field(4, description="passes over each rollout")
    normalize_advantages: bool = True


class APPOLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    kl: Tensor
    log_ratio: Tensor


def appo_loss(
    evaluated: Evaluated,
    batch: Batch,
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    kl_coef: float = 0.0,
    kl: Tensor | None = None,
) -> APPOLoss:
    """Clipped surrogate against the policy that acted, value error to V-trace's targets, entropy bonus, KL penalty.

    `kl` is that to the target network; without one, the penalty is on the KL to the policy that acted.
    """
    log_ratio = evaluated.logprobs - batch["behavior_logprobs"]
    policy_loss = clipped_surrogate(log_ratio, batch["advantages"], clip_coef)
    value_loss = clipped_value_loss(evaluated.values, evaluated.values, batch["returns"], None)
    entropy = evaluated.entropy.mean()
    kl = approx_kl(log_ratio) if kl is None else kl
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy + kl_coef * kl
    return APPOLoss(total, policy_loss, value_loss, entropy, kl, log_ratio)


class APPO(IMPALA):
    """The advantages are V-trace's without their ratio: the surrogate has one already, and clips it."""

    state_parts = (*IMPALA.state_parts, "target")

    params: APPOParams  # type: ignore[assignment]

    def __init__(self, policy: ActorCritic, params: APPOParams) -> None:
        super().__init__(policy, params)
        self.target = TargetNetwork(policy) if params.target_update_interval else None

    @replaceable
    def gradient_step(self, rows: Batch) -> UpdateResult:
        result = super().gradient_step(rows)
        if self.target is not None:
            self.target.copy_every(self.params.target_update_interval or 1, self.policy)
        return result

    @torch.no_grad()
    def reference(self, obs: Tree, evaluated: Evaluated) -> Tensor:
        return evaluated.dist if self.target is None else self.target.network.distribution(obs)

    def loss(self, evaluated: Evaluated, batch: Batch) -> APPOLoss:
        kl = None if self.target is None else self.policy.head.kl(batch["reference"], evaluated.dist).mean()
        return appo_loss(
            evaluated,
            batch,
            clip_coef=self.params.clip_coef,
            ent_coef=self.params.ent_coef,
            vf_coef=self.params.vf_coef,
            kl_coef=self.params.kl_coef,
            kl=kl,
        )

    def metrics(self, loss: APPOLoss, evaluated: Evaluated, rows: Batch) -> dict[str, float | Tensor]:
        clipped = clip_fraction(loss.log_ratio.detach(), self.params.clip_coef)
        return super().metrics(loss, evaluated, rows) | {"clip_fraction": clipped, "kl": loss.kl.detach()}
