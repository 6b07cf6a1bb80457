"""Phasic Policy Gradient (Cobbe et al., 2020, arXiv:2009.04416)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.ppo import PPO, PPOLoss, ppo_loss
from rl_training.data.trees import Tree
from rl_training.models.actor_critic import Evaluated
from rl_training.models.heads import ActionHead
from rl_training.models.mlp_ppg import AuxiliaryEvaluated, MLPPPGModel
from rl_training.ops.losses import clipped_value_loss


class PPGAuxiliaryLoss(NamedTuple):
    total: Tensor
    aux_value_loss: Tensor
    clone_kl: Tensor
    value_loss: Tensor


def ppg_loss(
    evaluated: Evaluated,
    batch: Batch,
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    clip_value_loss: bool = False,
) -> PPOLoss:
    """The policy phase's: PPO's, on advantages that were normalised over the whole rollout, if at all.

    That the value error stays out of the trunk is the model's doing.
    """
    return ppo_loss(
        evaluated,
        batch,
        clip_coef=clip_coef,
        ent_coef=ent_coef,
        vf_coef=vf_coef,
        clip_value_loss=clip_value_loss,
        normalize_advantages=False,
    )


def ppg_auxiliary_loss(
    evaluated: AuxiliaryEvaluated, batch: Batch, *, head: ActionHead, beta_clone: float
) -> PPGAuxiliaryLoss:
    """½(V_aux − target)² + beta_clone · KL(teacher ‖ π) + ½(V − target)² (section 2.2)."""
    aux_value_loss = clipped_value_loss(evaluated.aux_values, evaluated.aux_values, batch["returns"], None)
    value_loss = clipped_value_loss(evaluated.values, evaluated.values, batch["returns"], None)
    clone_kl = head.kl(batch["teacher"], evaluated.dist).mean()
    return PPGAuxiliaryLoss(aux_value_loss + beta_clone * clone_kl + value_loss, aux_value_loss, clone_kl, value_loss)


class PPG(PPO):
    """`update` is a step of the policy phase, `auxiliary_update` one of the auxiliary phase, on one minibatch each.

    Each phase has an optimizer of its own over the same parameters.
    """

    state_parts = (*PPO.state_parts, "aux_optimizer")
    state_scalars = ("policy_updates", "auxiliary_updates")
    policy: MLPPPGModel

    def __init__(
        self, policy: MLPPPGModel, *, aux_learning_rate: float, beta_clone: float = 1.0, **options: Any
    ) -> None:
        super().__init__(policy, **options)
        self.aux_optimizer = FlatOptimizer(
            self.optimizer,
            learning_rate=aux_learning_rate,
            eps=options.get("adam_eps", 1e-5),
            kind=options.get("optimizer", "adam"),
        )
        self.beta_clone = beta_clone
        self.policy_updates = 0
        self.auxiliary_updates = 0

    @property
    def aux_learning_rate(self) -> float:
        return self.aux_optimizer.learning_rate

    @aux_learning_rate.setter
    def aux_learning_rate(self, value: float) -> None:
        self.aux_optimizer.learning_rate = value

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        self.policy_updates += 1
        return super().update(batch, global_step=global_step)

    def loss(self, evaluated: Evaluated, batch: Batch) -> PPOLoss:
        return ppg_loss(
            evaluated,
            batch,
            clip_coef=self.clip_coef,
            ent_coef=self.ent_coef,
            vf_coef=self.vf_coef,
            clip_value_loss=self.clip_value_loss,
        )

    @torch.no_grad()
    def teacher(self, obs: Tree) -> Tensor:
        """The policy as it is before an auxiliary phase, which is to leave it there."""
        return self.policy.distribution(obs)

    def auxiliary_update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """On rows with `obs`, `returns` and the `teacher`'s distributions."""
        self.auxiliary_updates += 1
        evaluated = self.policy.evaluate_auxiliary(batch["obs"])
        loss = ppg_auxiliary_loss(evaluated, batch, head=self.policy.head, beta_clone=self.beta_clone)
        grad_norm = self.aux_optimizer.step(loss.total, max_grad_norm=self.max_grad_norm)
        return UpdateResult(
            {
                "aux_loss": loss.total.detach(),
                "aux_value_loss": loss.aux_value_loss.detach(),
                "aux_true_value_loss": loss.value_loss.detach(),
                "clone_kl": loss.clone_kl.detach(),
                "aux_grad_norm": grad_norm,
            }
        )
