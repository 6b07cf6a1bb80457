"""Recurrent PPO: PPO (Schulman et al., 2017, arXiv:1707.06347) on whole sequences of a policy with a memory."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.ppo import PPO, PPOParams
from rl_training.data.trees import tree_map
from rl_training.models.actor_critic import Evaluated
from rl_training.models.recurrent import Cell, RecurrentActorCritic

COLUMNS = ("behavior_logprobs", "values", "advantages", "returns")


class RecurrentPPOParams(PPOParams):
    cell: Cell = Field("lstm", description="kind of memory")
    recurrent_size: PositiveInt = Field(64, description="width of the memory")
    memory_length: PositiveInt = Field(16, ge=2, description="observations that a transformer sees")
    attention_heads: PositiveInt = Field(4, description="heads of a transformer, which share its width")
    sequence_length: PositiveInt | None = Field(None, description="rows of a sequence; default: the whole rollout")
    hidden_sizes: tuple[PositiveInt, ...] = (64,)
    update_epochs: PositiveInt = 10

    def idle(self) -> dict[str, str]:
        lengths = () if self.cell == "transformer" else ("memory_length", "attention_heads")
        return super().idle() | dict.fromkeys(lengths, f"with cell {self.cell!r}")

    @model_validator(mode="after")
    def _sequences_fill_the_rollout(self) -> RecurrentPPOParams:
        if self.sequence_length and self.rollout_steps % self.sequence_length:
            raise ValueError(
                f"sequence_length: {self.sequence_length} does not divide rollout_steps ({self.rollout_steps})"
            )
        return self


class RecurrentPPO(PPO):
    """One gradient step on a set of sequences per `update`.

    The batch is sequence by sequence: leaves `[N, T, …]`, with `starts` and `valid` among them, and the `state`
    `[N, S]` that the policy had before each sequence.
    """

    policy: RecurrentActorCritic
    params: RecurrentPPOParams

    def update(self, batch: Batch) -> UpdateResult:
        names = ("obs", "actions", "starts", "valid", *COLUMNS)
        by_time = tree_map(lambda leaf: leaf.transpose(0, 1), {name: batch[name] for name in names})
        evaluated = self.policy.evaluate_actions(
            by_time["obs"], by_time["actions"], state=batch["state"], starts=by_time["starts"]
        )
        # A row in which an environment only reset itself is seen by the core, and by no loss or statistic.
        kept = by_time["valid"].flatten().nonzero()[:, 0]
        rows = {name: by_time[name].flatten()[kept] for name in COLUMNS}
        return self.descend(Evaluated(*(column[kept] for column in evaluated)), rows)
