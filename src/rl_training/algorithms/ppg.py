"""Phasic Policy Gradient (Cobbe et al., 2020, arXiv:2009.04416)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from torch import Tensor

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.peers import Peers
from rl_training.algorithms.ppo import PPO, PPOLoss, PPOParams, ppo_loss
from rl_training.data.trees import Tree
from rl_training.models.actor_critic import Evaluated
from rl_training.models.heads import ActionHead
from rl_training.models.mlp_ppg import AuxiliaryEvaluated, MLPPPGModel
from rl_training.ops.losses import clipped_value_loss


class PPGParams(PPOParams):
    policy_phases: PositiveInt = Field(32, description="rollouts between two auxiliary phases, N_pi of the paper")
    aux_epochs: PositiveInt = Field(6, description="passes of an auxiliary phase over its rollouts, E_aux of the paper")
    aux_minibatches: PositiveInt = Field(16, description="parts of each of those passes")
    beta_clone: float = Field(1.0, ge=0, description="how strongly an auxiliary phase holds the policy where it was")
    aux_learning_rate: PositiveFloat = Field(5e-4, description="step size of the auxiliary phase")
    update_epochs: PositiveInt = Field(1, description="passes over each rollout, E_pi of the paper")
    normalize_advantages: bool = Field(True, description="over the whole rollout")
    normalize_reward: bool = Field(True, description="brings value targets to the scale on which beta_clone can hold")

    @field_validator("share_torso")
    @classmethod
    def _trunk_is_shared(cls, value: bool | None) -> bool | None:
        if value is False:
            raise ValueError("share_torso: PPG's auxiliary phase trains the policy's own trunk; leave it out")
        return value


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
    params: PPGParams

    def __init__(self, policy: MLPPPGModel, params: PPGParams) -> None:
        super().__init__(policy, params)
        self.aux_optimizer = FlatOptimizer(self.optimizer, eps=params.adam_eps, kind=params.optimizer)
        self.policy_updates = 0
        self.auxiliary_updates = 0

    def join(self, peers: Peers) -> None:
        super().join(peers)
        self.aux_optimizer.combine_ = peers.mean_

    def update(self, batch: Batch) -> UpdateResult:
        self.policy_updates += 1
        return super().update(batch)

    def usable(self, advantages: Tensor) -> Tensor:
        """They were normalised over the whole rollout, if at all."""
        return advantages

    def loss(self, evaluated: Evaluated, batch: Batch) -> PPOLoss:
        params = self.params
        return ppg_loss(
            evaluated,
            batch,
            clip_coef=params.clip_coef,
            ent_coef=params.ent_coef,
            vf_coef=params.vf_coef,
            clip_value_loss=params.clip_value_loss,
        )

    @torch.no_grad()
    def teacher(self, obs: Tree) -> Tensor:
        """The policy as it is before an auxiliary phase, which is to leave it there."""
        return self.policy.distribution(obs)

    def auxiliary_update(self, batch: Batch) -> UpdateResult:
        """Takes a step on rows with `obs`, `returns` and the `teacher`'s distributions."""
        self.auxiliary_updates += 1
        params = self.params
        evaluated = self.policy.evaluate_auxiliary(batch["obs"])
        loss = ppg_auxiliary_loss(evaluated, batch, head=self.policy.head, beta_clone=params.beta_clone)
        grad_norm = self.aux_optimizer.step(
            loss.total, learning_rate=params.aux_learning_rate, max_grad_norm=params.max_grad_norm
        )
        return UpdateResult(
            {
                "aux_loss": loss.total.detach(),
                "aux_value_loss": loss.aux_value_loss.detach(),
                "aux_true_value_loss": loss.value_loss.detach(),
                "clone_kl": loss.clone_kl.detach(),
                "aux_grad_norm": grad_norm,
            }
        )
