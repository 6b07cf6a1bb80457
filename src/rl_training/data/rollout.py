"""`Rollout`: a fragment of experience, time-major `[T, B, …]`, as every learner receives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rl_training.data.trees import Tree, flatten_time, tree_map


class Episode(NamedTuple):
    """A finished episode, in the environment's own rewards."""

    total_reward: float
    length: int
    task: str = ""  # its name, where there are several
    infos: tuple[tuple[str, float], ...] = ()  # means of the numbers in `info`, by key


def task_means(episodes: Iterable[Episode]) -> dict[str, float]:
    """`return_mean/<task>` of each task; nothing where there is only one."""
    returns: dict[str, list[float]] = {}
    for episode in episodes:
        returns.setdefault(episode.task, []).append(episode.total_reward)
    return {f"return_mean/{task}": sum(paid) / len(paid) for task, paid in sorted(returns.items()) if task}


def info_means(episodes: Iterable[Episode]) -> dict[str, float]:
    """`info/<key>` over the episodes that have it; the mean of `is_success` is called `success_rate`."""
    numbers: dict[str, list[float]] = {}
    for episode in episodes:
        for key, number in episode.infos:
            numbers.setdefault("success_rate" if key == "is_success" else f"info/{key}", []).append(number)
    return {name: sum(values) / len(values) for name, values in sorted(numbers.items())}


@dataclass(frozen=True)
class Rollout:
    """`terminated` cuts the bootstrap, `terminated | truncated` the trace; rows that are not `valid` never happened.

    The tensors are the collector's buffers: they hold until its next `collect`, so a learner that keeps them copies.
    """

    obs: Tree
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    starts: Tensor  # True where an episode begins: recurrent state is reset before the row
    behavior_logprobs: Tensor
    values: Tensor
    next_values: Tensor  # of the state that really followed: at an end, of the final observation
    last_obs: Tree  # [B, …], what the next row would see
    final_rows: Tensor  # [K, 2], (t, b) of ended episodes whose final observation is not the next row's
    final_obs: Tree  # [K, …]
    policy_version: Tensor  # [T, B]
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    episodes: tuple[Episode, ...] = ()
    source: int = 0  # which collector made it

    @cached_property
    def done(self) -> Tensor:
        return self.terminated | self.truncated

    @property
    def next_obs(self) -> Tree:
        """The observations that really followed each row, `[T, B, …]`: at an end, the final one."""

        def following(obs: Tensor, last: Tensor, final: Tensor) -> Tensor:
            shifted = torch.cat([obs[1:], last[None]])
            if len(self.final_rows):
                shifted[self.final_rows[:, 0], self.final_rows[:, 1]] = final
            return shifted

        return tree_map(following, self.obs, self.last_obs, self.final_obs)

    @cached_property
    def num_steps(self) -> int:
        """Environment steps in it; reset rows do not count."""
        return int(self.valid.count_nonzero())

    def flat(self, **columns: Tensor) -> dict[str, Tree]:
        """The valid rows as a batch: obs, actions, behavior_logprobs, values, extras and the given `[T, B]` columns."""
        batch = {
            "obs": self.obs,
            "actions": self.actions,
            "behavior_logprobs": self.behavior_logprobs,
            "values": self.values,
            **self.extras,
            **columns,
        }
        rows = flatten_time(batch)
        if self.num_steps == self.valid.numel():
            return rows
        kept = self.valid.reshape(-1).nonzero()[:, 0]
        return tree_map(lambda leaf: leaf[kept], rows)


def next_values(values: Tensor, last_values: Tensor, final_rows: Tensor, final_values: Tensor) -> Tensor:
    """Values of the states that followed each row, given those after the last row and those at ends of episodes."""
    following = torch.cat([values[1:], last_values[None]])
    if len(final_rows):
        following[final_rows[:, 0], final_rows[:, 1]] = final_values
    return following
