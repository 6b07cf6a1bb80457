"""`StreamReplay`: what environments did, as one endless stream of rows each, sampled in windows.

A row is an observation, the action taken at it, and the reward, `terminated` and `truncated` that came of the action.
The observation that ends an episode is a row of its own, `is_last`, with a zero action that nobody took and a zero
reward; the next row `is_first`. An episode of two steps that terminates, and the begin of the next one, are

    obs         o0     o1     o2     p0     …
    actions     a0     a1     0      b0
    rewards     r1     r2     0      …
    terminated  False  True   False  …
    is_first    True   False  False  True
    is_last     False  False  True   False

so that whoever learns from arrivals reads the reward of `o2` from the row before, which `arrivals` does. Rows in which
an environment only reset itself are that last row: they hold the final observation, and no step of the environment.
A row that `is_first` after one that is not `is_last` follows a restart of the environments: the episode has no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_leaves, tree_map
from rl_training.errors import ConfigError

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]  # (stream, place) of each


class StreamReplay:
    """Ring buffers `[streams, places, …]` whose columns the first rollout declares; the oldest rows are overwritten."""

    def __init__(self, capacity: int, num_streams: int) -> None:
        self.places = capacity // num_streams
        self.num_streams = num_streams
        self._columns: dict[str, Tree] = {}
        self._ends = np.zeros(num_streams, dtype=np.int64)  # rows ever written to each stream

    def __len__(self) -> int:
        return int(self._filled.sum())

    @property
    def _filled(self) -> NDArray[np.int64]:
        return np.minimum(self._ends, self.places)

    def add(self, rollout: Rollout) -> None:
        """Copies the rollout's rows, and the final observations it has beside them."""
        steps, envs = rollout.rewards.shape
        first = rollout.source * envs  # collectors share the environments evenly
        final_t, final_b = rollout.final_rows.numpy().T
        counts = np.ones((steps, envs), dtype=np.int64)
        counts[final_t, final_b] = 2
        if counts.sum(0).max() > self.places:
            raise ConfigError(f"a replay of {self.places} rows per environment cannot hold a rollout of {steps} steps")
        places = self._ends[first : first + envs] + counts.cumsum(0) - counts
        streams = np.broadcast_to(np.arange(first, first + envs), counts.shape)
        columns = _columns(rollout)
        self._write((streams, places), columns)
        resets = ~rollout.valid.cpu().numpy()
        self._write((streams[resets], places[resets]), _last_rows(tree_map(lambda leaf: leaf[resets], columns)))
        ended = tree_map(lambda leaf: leaf[final_t, final_b], columns)
        finals = ended | {"obs": tree_map(lambda leaf: leaf.cpu().numpy(), rollout.final_obs)}
        self._write((streams[final_t, final_b], places[final_t, final_b] + 1), _last_rows(finals))
        self._ends[first : first + envs] += counts.sum(0)

    def num_windows(self, length: int) -> int:
        return int(np.maximum(self._filled - length + 1, 0).sum())

    def sample(self, batch: int, length: int, rng: np.random.Generator) -> dict[str, Tree]:
        """`[length, batch, …]` tensors, uniform over all windows; a window may cross ends of episodes."""
        bounds = np.maximum(self._filled - length + 1, 0).cumsum()
        if not bounds[-1]:
            raise ValueError(f"no environment has {length} rows in a row yet")
        chosen = rng.integers(bounds[-1], size=batch)
        streams = np.searchsorted(bounds, chosen, side="right")
        oldest = (self._ends - self._filled)[streams]
        begins = oldest + chosen - np.concatenate([[0], bounds])[streams]
        rows = (streams[None, :], (begins + np.arange(length)[:, None]) % self.places)
        return tree_map(lambda column: torch.from_numpy(column[rows]), self._columns)

    def state_dict(self) -> dict[str, Any]:
        """What is filled, stream by stream, oldest first."""
        filled = self._filled
        streams = np.repeat(np.arange(self.num_streams), filled)
        places = np.concatenate([np.arange(end - n, end) for end, n in zip(self._ends, filled, strict=True)])
        rows = (streams, places % self.places)
        return {
            "columns": tree_map(lambda column: column[rows], self._columns),
            "filled": filled,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        filled = state["filled"]
        streams = np.repeat(np.arange(self.num_streams), filled)
        places = np.concatenate([np.arange(n) for n in filled])
        self._columns = {}
        self._ends = np.zeros(self.num_streams, dtype=np.int64)
        if state["columns"]:
            self._write((streams, places), state["columns"])
        self._ends += filled

    def _write(self, rows: Rows, columns: dict[str, Tree]) -> None:
        if not self._columns:
            self._columns = tree_map(lambda leaf: self._empty(leaf, rows[0].ndim), columns)
        where = (rows[0], rows[1] % self.places)
        tree_map(lambda column, new: column.__setitem__(where, new), self._columns, columns)

    def _empty(self, leaf: NDArray[Any], row_axes: int) -> NDArray[Any]:
        return np.zeros((self.num_streams, self.places, *leaf.shape[row_axes:]), dtype=leaf.dtype)


def _columns(rollout: Rollout) -> dict[str, Tree]:
    """`[T, B, …]` arrays; what else the policy chose to add goes along."""
    columns = {
        "obs": rollout.obs,
        "actions": rollout.actions,
        "rewards": rollout.rewards,
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "is_first": rollout.starts,
        "is_last": ~rollout.valid,
        **rollout.extras,
    }
    return tree_map(lambda leaf: leaf.cpu().numpy(), columns)


def _last_rows(columns: dict[str, Tree]) -> dict[str, Tree]:
    """Only the observation is real."""
    count = len(tree_leaves(columns["obs"])[0])
    kept = {"obs": columns["obs"], "is_last": np.ones(count, dtype=bool)}
    return {name: kept.get(name, tree_map(np.zeros_like, column)) for name, column in columns.items()}


def arrivals(window: Mapping[str, Tree]) -> dict[str, Tree]:
    """A window of L + 1 rows as L observations, each with what led to it: the action, reward and termination before.

    The first of them counts as a beginning, since nothing remembers what was before it. `is_last` is also True where
    an episode was cut off: what comes next is another one.
    """
    goes_on = ~window["is_first"][1:]
    is_first = window["is_first"][1:].clone()
    is_first[0] = True
    is_last = window["is_last"][1:].clone()
    is_last[:-1] |= window["is_first"][2:]
    return {
        "obs": tree_map(lambda leaf: leaf[1:], window["obs"]),
        "previous_actions": window["actions"][:-1],
        "rewards": window["rewards"][:-1] * goes_on,
        "terminal": window["terminated"][:-1] & goes_on,
        "is_first": is_first,
        "is_last": is_last,
    }
