"""Recurrent PPO: PPO (Schulman et al., 2017, arXiv:1707.06347) on whole sequences of a policy with a memory."""

from __future__ import annotations

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.ppo import PPO
from rl_training.data.trees import tree_map
from rl_training.models.actor_critic import Evaluated
from rl_training.models.recurrent import RecurrentActorCritic

COLUMNS = ("behavior_logprobs", "values", "advantages", "returns")


class RecurrentPPO(PPO):
    """One gradient step on a set of sequences per `update`.

    The batch is sequence by sequence: leaves `[N, T, …]`, with `starts` and `valid` among them, and the `state`
    `[N, S]` that the policy had before each sequence.
    """

    policy: RecurrentActorCritic

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        names = ("obs", "actions", "starts", "valid", *COLUMNS)
        by_time = tree_map(lambda leaf: leaf.transpose(0, 1), {name: batch[name] for name in names})
        evaluated = self.policy.evaluate_actions(
            by_time["obs"], by_time["actions"], state=batch["state"], starts=by_time["starts"]
        )
        # A row in which an environment only reset itself is seen by the core, and by no loss or statistic.
        kept = by_time["valid"].flatten().nonzero()[:, 0]
        rows = {name: by_time[name].flatten()[kept] for name in COLUMNS}
        return self.descend(Evaluated(*(column[kept] for column in evaluated)), rows)
