"""PPG: PPO on each rollout, and after every few of them an auxiliary phase over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.ppg import PPG, PPGParams
from rl_training.data.phase_memory import PhaseMemory
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.ops.losses import normalize
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import AUX_LEARNING_RATE, BETA_CLONE
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.ppo_trainer import PPOLearner


class PPGLearner(PPOLearner):
    Params = PPGParams
    controls = (*PPOLearner.controls, BETA_CLONE, AUX_LEARNING_RATE)
    state_parts = (*PPOLearner.state_parts, "memory")
    defaults_by_kind = ActorCriticLearner.defaults_by_kind
    algorithm_class = PPG
    policy_parts = ("distribution", "head", "evaluate_auxiliary")
    params: PPGParams
    algorithm: PPG

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.memory = PhaseMemory()

    @classmethod
    def usual_policy(cls, params: Any, spaces: Spaces) -> MLPPPGModel:
        return MLPPPGModel(spaces, cls.model_options(params))

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        self.note_values(batch)
        if self.params.normalize_advantages:
            batch["advantages"] = normalize(batch["advantages"])
        yield from self.epochs(batch)
        self.memory.add({"obs": batch["obs"], "returns": batch["returns"]})
        if len(self.memory) >= self.params.policy_phases:
            yield from self.auxiliary_phase()
        self.update_statistics(rollout)

    def auxiliary_phase(self) -> Iterator[UpdateResult]:
        """Over all rollouts since the last one, held to the policy as it is now."""
        rows = self.memory.pop_all()
        rows["teacher"] = self.algorithm.teacher(rows["obs"])
        for _ in range(self.params.aux_epochs):
            for minibatch in self.minibatches(rows, self.params.aux_minibatches):
                yield self.algorithm.peers.averaged(self.algorithm.auxiliary_update(minibatch))


train_ppg = trainer_for(PPGLearner)
