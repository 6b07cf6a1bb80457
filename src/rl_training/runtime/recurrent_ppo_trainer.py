"""Recurrent PPO: PPO's epochs, with sequences in place of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.recurrent_ppo import RecurrentPPO
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.models.recurrent import Cell, CoreOptions, RecurrentActorCritic
from rl_training.runtime.actor_critic_learner import value_metrics
from rl_training.runtime.ppo_trainer import PPOLearner, PPOParams
from rl_training.runtime.workflows import trainer_for


class RecurrentPPOParams(PPOParams):
    cell: Cell = "lstm"
    recurrent_size: PositiveInt = 64
    sequence_length: PositiveInt | None = Field(None, description="rows of a sequence; default: the whole rollout")
    hidden_sizes: tuple[PositiveInt, ...] = (64,)

    @model_validator(mode="after")
    def _sequences_fill_the_rollout(self) -> RecurrentPPOParams:
        if self.sequence_length and self.rollout_steps % self.sequence_length:
            raise ValueError(
                f"sequence_length: {self.sequence_length} does not divide rollout_steps ({self.rollout_steps})"
            )
        return self


class RecurrentPPOLearner(PPOLearner):
    Params = RecurrentPPOParams
    shared_method = "descend"
    params: RecurrentPPOParams
    algorithm: RecurrentPPO

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> RecurrentPPO:
        return RecurrentPPO(cls.build_policy(params, spaces), **cls.policy_options(params))

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> RecurrentActorCritic:
        return RecurrentActorCritic(spaces, cls.model_options(params), CoreOptions(params.cell, params.recurrent_size))

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        advantages = self.advantages(rollout)
        returns = advantages + rollout.values
        yield UpdateResult(value_metrics(rollout.flat(returns=returns)), num_gradient_steps=0)
        yield from self.epochs(self.sequences(rollout, advantages, returns), global_step=global_step)
        self.observe(rollout)

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


train_recurrent_ppo = trainer_for(RecurrentPPOLearner)
