"""APPO: IMPALA with PPO's clipped surrogate and, as an option, a target network.

The surrogate is PPO's (Schulman et al., 2017, arXiv:1707.06347), the traces IMPALA's (Espeholt et al., 2018,
arXiv:1802.01561), the target network IMPACT's (Luo et al., 2020, arXiv:1912.00167).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.impala import IMPALA
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.data.trees import Tree
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.ops.losses import approx_kl, clip_fraction, clipped_surrogate, clipped_value_loss, normalize


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
    normalize_advantages: bool = False,
) -> APPOLoss:
    """Clipped surrogate against the policy that acted, value error to V-trace's targets, entropy bonus, KL penalty.

    `kl` is that to the target network; without one, the penalty is on the KL to the policy that acted.
    """
    advantages = normalize(batch["advantages"]) if normalize_advantages else batch["advantages"]
    log_ratio = evaluated.logprobs - batch["behavior_logprobs"]
    policy_loss = clipped_surrogate(log_ratio, advantages, clip_coef)
    value_loss = clipped_value_loss(evaluated.values, evaluated.values, batch["returns"], None)
    entropy = evaluated.entropy.mean()
    kl = approx_kl(log_ratio) if kl is None else kl
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy + kl_coef * kl
    return APPOLoss(total, policy_loss, value_loss, entropy, kl, log_ratio)


class APPO(IMPALA):
    """The advantages are V-trace's without their ratio: the surrogate has one already, and clips it."""

    state_parts = (*IMPALA.state_parts, "target")

    def __init__(
        self,
        policy: ActorCritic,
        *,
        clip_coef: float,
        kl_coef: float = 0.0,
        target_update_interval: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(policy, pg_rho_bar=None, **options)
        self.clip_coef = clip_coef
        self.kl_coef = kl_coef
        self.target = TargetNetwork(policy, target_update_interval) if target_update_interval else None

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        result = super().update(batch, global_step=global_step)
        if self.target is not None:
            self.target.follow(self.policy)
        return result

    @torch.no_grad()
    def reference(self, obs: Tree, evaluated: Evaluated) -> Tensor:
        return evaluated.dist.detach() if self.target is None else self.target.network.distribution(obs)

    def loss(self, evaluated: Evaluated, batch: Batch) -> APPOLoss:
        kl = None if self.target is None else self.policy.head.kl(batch["reference"], evaluated.dist).mean()
        return appo_loss(
            evaluated,
            batch,
            clip_coef=self.clip_coef,
            ent_coef=self.ent_coef,
            vf_coef=self.vf_coef,
            kl_coef=self.kl_coef,
            kl=kl,
            normalize_advantages=self.normalize_advantages,
        )

    def metrics(self, loss: APPOLoss, evaluated: Evaluated, batch: Batch) -> dict[str, float | Tensor]:
        clipped = clip_fraction(loss.log_ratio.detach(), self.clip_coef)
        return super().metrics(loss, evaluated, batch) | {"clip_fraction": clipped, "kl": loss.kl.detach()}
