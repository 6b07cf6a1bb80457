"""Recurrent PPO: PPO's epochs, with sequences in place of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.recurrent_ppo import RecurrentPPO, RecurrentPPOParams
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.models.recurrent import CoreOptions, RecurrentActorCritic
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.ppo_trainer import PPOLearner


class RecurrentPPOLearner(PPOLearner):
    Params = RecurrentPPOParams
    algorithm_class = RecurrentPPO
    params: RecurrentPPOParams
    algorithm: RecurrentPPO

    @classmethod
    def usual_policy(cls, params: Any, spaces: Spaces) -> RecurrentActorCritic:
        core = CoreOptions(params.cell, params.recurrent_size, params.memory_length, params.attention_heads)
        return RecurrentActorCritic(spaces, cls.model_options(params), core)

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        advantages, returns = self.advantages(rollout)
        self.note_values(rollout.flat(returns=returns))
        yield from self.epochs(self.sequences(rollout, advantages, returns))
        self.update_statistics(rollout)

    def sequences(self, rollout: Rollout, advantages: Tensor, returns: Tensor) -> dict[str, Tree]:
        """The rollout sequence by sequence, `[N, T, …]`, with the state before each; all resets are left out."""
        length = self.params.sequence_length or self.params.rollout_steps
        columns = {
            "obs": rollout.obs,
            "actions": rollout.actions,
            "behavior_logprobs": rollout.behavior_logprobs,
            "values": rollout.values,
            "starts": rollout.starts,
            "valid": rollout.valid,
            "advantages": advantages,
            "returns": returns,
        }
        batch = tree_map(lambda leaf: leaf.unflatten(0, (-1, length)).transpose(1, 2).flatten(0, 1), columns)
        batch["state"] = rollout.extras["state"][::length].flatten(0, 1)
        happened = batch["valid"].any(dim=1)
        return tree_map(lambda leaf: leaf[happened], batch)

    def rows_of_items(self, batch: dict[str, Tree]) -> NDArray[np.integer]:
        """The items are sequences, of which the losses see the valid rows."""
        return batch["valid"].sum(dim=1).cpu().numpy()


train_recurrent_ppo = trainer_for(RecurrentPPOLearner)
