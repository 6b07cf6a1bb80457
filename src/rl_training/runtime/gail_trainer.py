"""GAIL: PPO on the rewards of a discriminator that tells the expert's steps from the policy's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.gail import GAIL, GAILParams, behaviour_cloning_loss
from rl_training.data.demonstrations import HOW_TO_RECORD, Demonstrations, load_demonstrations
from rl_training.data.fitting_demonstrations import check_fit
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, tree_map
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.discriminator import Discriminator
from rl_training.runtime.controls import Control
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.ppo_trainer import PPOLearner

DISCRIMINATOR_LEARNING_RATE = Control("discriminator_learning_rate")
DISCRIMINATOR_ENTROPY_COEF = Control("discriminator_entropy_coef")


class GAILLearner(PPOLearner):
    Params: ClassVar[type[GAILParams]] = GAILParams
    controls = (*PPOLearner.controls, DISCRIMINATOR_LEARNING_RATE, DISCRIMINATOR_ENTROPY_COEF)
    state_scalars = ("started",)
    policy_parts = ("head",)
    params: GAILParams
    algorithm: GAIL

    def __init__(self, params: GAILParams, spaces: Spaces, **options: Any) -> None:
        if params.demonstrations is None:
            raise ConfigError(f"GAIL imitates an expert: set demonstrations; {HOW_TO_RECORD}")
        super().__init__(params, spaces, **options)
        self.started = False

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        """None: the discriminator has layers of its own, and an MLP for actions."""
        return {}

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> GAIL:
        discriminator = Discriminator(spaces, cls.model_options(params).torso, smooth=params.spectral_norm)
        return GAIL(cls.build_policy(params, spaces), discriminator, params)

    @cached_property
    def expert(self) -> Demonstrations:
        """Read when training begins: evaluation and prediction need no expert."""
        source = str(self.params.demonstrations)
        expert = load_demonstrations(source)
        check_fit(expert, *self.spaces, env_id=self.env_id, source=source)
        return expert

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        clones = not self.started and self.params.clone_updates > 0
        if not self.started:
            yield from self.begin()
        if not clones:  # or else the policy that collected the rollout is gone
            yield from self.discriminate(rollout)
            yield from super().updates(rollout)
        self.note(expert_nll=self.expert_nll())

    def begin(self) -> Iterator[UpdateResult]:
        """The scale of the discriminator's inputs, and behaviour cloning as a warm start, once."""
        self.algorithm.discriminator.update_statistics(self.expert.obs, self.expert.actions)
        if self.params.clone_updates and self.params.normalize_obs:
            self.algorithm.policy.update_statistics(self.expert.obs)
        for _ in range(self.params.clone_updates):
            yield self.algorithm.clone_update(self.own_terms(self.expert_rows()))
        if self.params.clone_updates:
            # A clone is so certain of its actions that PPO's first steps would be too large for it.
            self.algorithm.policy.head.widen(self.params.log_std_init)
        self.started = True

    def discriminate(self, rollout: Rollout) -> Iterator[UpdateResult]:
        rows = {"obs": flatten_time(rollout.obs), "actions": self.executed(rollout).flatten(0, 1)}
        kept = rollout.valid.flatten().nonzero()[:, 0].cpu().numpy()
        for _ in range(self.params.discriminator_updates):
            chosen = self.rng.generator.choice(kept, self.params.discriminator_batch)
            policy = tree_map(lambda leaf, chosen=chosen: leaf[chosen], rows)
            yield self.algorithm.discriminator_update(self.expert_rows(), policy)

    def expert_rows(self) -> dict[str, Tree]:
        chosen = self.rng.generator.integers(len(self.expert), size=self.params.discriminator_batch)
        rows = {"obs": self.expert.obs, "actions": self.expert.actions}
        return tree_map(lambda leaf: leaf[chosen].to(self.algorithm.policy.device), rows)

    def executed(self, rollout: Rollout) -> Tensor:
        """Returns the actions that the environments executed, which an expert's actions compare with."""
        actions = self.algorithm.policy.env_actions(rollout.actions.cpu().numpy())
        return torch.as_tensor(actions, device=rollout.actions.device)

    def own_terms(self, rows: dict[str, Tree]) -> dict[str, Tree]:
        """An expert's rows with actions as the policy samples them."""
        actions = self.algorithm.policy.head.from_env(rows["actions"].cpu().numpy())
        return rows | {"actions": torch.as_tensor(actions, device=rows["actions"].device)}

    def expert_nll(self) -> Tensor:
        """How unlikely the expert's actions are to the policy; behaviour cloning's `bc_loss` is the baseline."""
        with torch.no_grad():
            return behaviour_cloning_loss(self.algorithm.policy, self.own_terms(self.expert_rows()))

    def rewards(self, rollout: Rollout) -> Tensor:
        rows = self.algorithm.rewards(flatten_time(rollout.obs), self.executed(rollout).flatten(0, 1))
        return rows.reshape(rollout.rewards.shape) * rollout.valid


train_gail = trainer_for(GAILLearner)
