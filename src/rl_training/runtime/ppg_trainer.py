"""PPG: PPO on each rollout, and after every few of them an auxiliary phase over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.ppg import PPG
from rl_training.data.phase_memory import PhaseMemory
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.ops.losses import normalize
from rl_training.runtime.actor_critic_learner import value_metrics
from rl_training.runtime.controls import AUX_LEARNING_RATE, BETA_CLONE
from rl_training.runtime.ppo_trainer import PPOLearner, PPOParams
from rl_training.runtime.workflows import trainer_for


class PPGParams(PPOParams):
    policy_phases: PositiveInt = Field(32, description="rollouts between two auxiliary phases, N_pi of the paper")
    aux_epochs: PositiveInt = Field(6, description="passes of an auxiliary phase over its rollouts, E_aux of the paper")
    aux_minibatches: PositiveInt = Field(16, description="parts of each of those passes")
    beta_clone: float = Field(1.0, ge=0, description="how strongly an auxiliary phase holds the policy where it was")
    aux_learning_rate: PositiveFloat = 5e-4
    update_epochs: PositiveInt = Field(1, description="passes over each rollout, E_pi of the paper")
    normalize_advantages: bool = Field(True, description="over the whole rollout")
    normalize_reward: bool = Field(True, description="brings value targets to the scale on which beta_clone can hold")

    @field_validator("share_torso")
    @classmethod
    def _trunk_is_shared(cls, value: bool | None) -> bool | None:
        if value is False:
            raise ValueError("share_torso: PPG's auxiliary phase trains the policy's own trunk; leave it out")
        return value


class PPGLearner(PPOLearner):
    Params = PPGParams
    controls = (*PPOLearner.controls, BETA_CLONE, AUX_LEARNING_RATE)
    state_parts = (*PPOLearner.state_parts, "memory")
    params: PPGParams
    algorithm: PPG

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.memory = PhaseMemory()

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> PPG:
        options = cls.policy_options(params)
        options |= {"beta_clone": params.beta_clone, "aux_learning_rate": params.aux_learning_rate}
        options["normalize_advantages"] = False  # `learn` does so, over the whole rollout
        return PPG(cls.build_policy(params, spaces), **options)

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> MLPPPGModel:
        return MLPPPGModel(spaces, cls.model_options(params))

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        yield UpdateResult(value_metrics(batch), num_gradient_steps=0)
        if self.params.normalize_advantages:
            batch["advantages"] = normalize(batch["advantages"])
        yield from self.epochs(batch, global_step=global_step)
        self.memory.add({"obs": batch["obs"], "returns": batch["returns"]})
        if len(self.memory) >= self.params.policy_phases:
            yield from self.auxiliary_phase(global_step=global_step)
        self.observe(rollout)

    def auxiliary_phase(self, *, global_step: int) -> Iterator[UpdateResult]:
        """Over all rollouts since the last one, held to the policy as it is now."""
        rows = self.memory.pop_all()
        rows["teacher"] = self.algorithm.teacher(rows["obs"])
        for _ in range(self.params.aux_epochs):
            for minibatch in self.minibatches(rows, self.params.aux_minibatches):
                yield self.algorithm.auxiliary_update(minibatch, global_step=global_step)


train_ppg = trainer_for(PPGLearner)
