"""`StreamReplay`: what environments did, as one endless stream of rows each; drawn as rows, transitions or windows.

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
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.priorities import Priorities
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, row_forms, to_tensors, tree_leaves, tree_map
from rl_training.errors import CheckpointError, ConfigError
from rl_training.ops.unroll import ENDS, n_step_rewards

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]  # (stream, place) of each


class StreamReplay:
    """Ring buffers `[streams, places, …]` whose columns the first rollout declares; the oldest rows are overwritten.

    Rows are (stream, place), the place counted from the stream's first row ever. With `priority_alpha` every row has a
    priority, and `draw` takes rows in proportion to priority^alpha; last rows, at which no action was taken, have 0.
    """

    def __init__(self, capacity: int, num_streams: int, *, priority_alpha: float | None = None) -> None:
        self.places = capacity // num_streams
        self.num_streams = num_streams
        self._columns: dict[str, Tree] = {}
        self._ends = np.zeros(num_streams, dtype=np.int64)  # rows ever written to each stream
        self._priorities = None if priority_alpha is None else Priorities(self.capacity, priority_alpha)
        self._restored = False  # from a checkpoint, and not written to since
        self._begins: NDArray[np.int64] | None = None  # of episodes, as numbers of all streams in order; None: unknown

    @property
    def capacity(self) -> int:
        return self.places * self.num_streams

    def __len__(self) -> int:
        return int(self._filled.sum())

    @property
    def _filled(self) -> NDArray[np.int64]:
        return np.minimum(self._ends, self.places)

    def add(self, rollout: Rollout) -> None:
        """Copies the rollout's rows, and the final observations it has beside them."""
        steps, envs = rollout.rewards.shape
        own, begins = self.next_rows(rollout)
        final_t, final_b = rollout.final_rows.numpy().T
        counts = np.ones((steps, envs), dtype=np.int64)
        counts[final_t, final_b] = 2
        if counts.sum(0).max() > self.places:
            raise ConfigError(f"a replay of {self.places} rows per environment cannot hold a rollout of {steps} steps")
        places = begins + counts.cumsum(0) - counts
        streams = np.broadcast_to(own, counts.shape)
        columns = _columns(rollout)
        if self._restored:
            self._refuse_other_columns(columns)
        self._write((streams, places), columns)
        resets = ~rollout.valid.cpu().numpy()
        if resets.any():
            self._write((streams[resets], places[resets]), _last_rows(tree_map(lambda leaf: leaf[resets], columns)))
        ended = tree_map(lambda leaf: leaf[final_t, final_b], columns)
        finals = ended | {"obs": tree_map(lambda leaf: leaf.cpu().numpy(), rollout.final_obs)}
        last = (streams[final_t, final_b], places[final_t, final_b] + 1)
        self._write(last, _last_rows(finals))
        if self._priorities is not None:
            self._priorities.add(self._flat((streams, places))[~resets])
            self._priorities.clear(self._flat((streams[resets], places[resets])))
            self._priorities.clear(self._flat(last))
        self._ends[own] += counts.sum(0)
        self._begins = None

    def next_rows(self, rollout: Rollout) -> Rows:
        """Where the first rows of a rollout go; collectors share the environments evenly."""
        envs = rollout.rewards.shape[1]
        streams = rollout.source * envs + np.arange(envs)
        return streams, self._ends[streams]

    # ---- which rows

    def draw(
        self, count: int, rng: np.random.Generator, among: NDArray[np.int64] | None = None
    ) -> tuple[Rows, NDArray[np.float64]]:
        """Rows by their priorities, and how many times an equal share the probability of each is.

        `among` names the streams to draw from; without it, all of them.
        """
        assert self._priorities is not None
        if among is None:
            flat, shares = self._priorities.draw(count, rng)
        else:
            flat, shares = self._priorities.draw_within(self._spans(among), count, rng)
        streams, slots = np.divmod(flat, self.places)
        rows = len(self) if among is None else int(self._filled[among].sum())
        return (streams, self._place(streams, slots)), shares * rows

    def drawable_streams(self) -> NDArray[np.int64]:
        """The streams that have a row which priorities may draw."""
        assert self._priorities is not None
        return np.flatnonzero(self._priorities.masses(self._spans(np.arange(self.num_streams))) > 0.0)

    def newest(self, streams: NDArray[np.int64]) -> Rows:
        """The last row of each of these streams."""
        return streams, self._ends[streams] - 1

    def _spans(self, streams: NDArray[np.int64]) -> NDArray[np.int64]:
        """[S, 2]: the slots of streams, from the first to the one after the last."""
        return np.stack([streams, streams + 1], axis=1) * self.places

    def set_priorities(self, rows: Rows, priorities: NDArray[np.floating]) -> None:
        assert self._priorities is not None
        self._priorities.set(self._flat(rows), priorities)

    def draw_uniformly(self, count: int, rng: np.random.Generator) -> Rows:
        """Rows from all that are filled, last ones too."""
        return self._nth(rng.integers(len(self), size=count), self._filled)

    def num_windows(self, length: int) -> int:
        return int(np.maximum(self._filled - length + 1, 0).sum())

    def sample(self, batch: int, length: int, rng: np.random.Generator) -> dict[str, Tree]:
        """`[length, batch, …]` tensors, uniform over all windows; a window may cross ends of episodes."""
        counts = np.maximum(self._filled - length + 1, 0)
        if not counts.any():
            raise ValueError(f"no environment has {length} rows in a row yet")
        streams, begins = self._nth(rng.integers(counts.sum(), size=batch), counts)
        rows = (streams[None, :], begins + np.arange(length)[:, None])
        return to_tensors({name: self.column(name, rows) for name in self._columns})

    def following(self, rows: Rows, length: int) -> tuple[Rows, NDArray[np.bool_]]:
        """The `[length, batch]` rows from each of the rows on, and which of them were written yet."""
        streams, places = rows
        ahead = places + np.arange(length)[:, None]
        newest = self._ends[streams] - 1
        return (np.broadcast_to(streams, ahead.shape), np.minimum(ahead, newest)), ahead <= newest

    def predecessors(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """The rows before, and which of them are still there and of the same episode."""
        streams, places = rows
        kept = (places > (self._ends - self._filled)[streams]) & ~self.column("is_first", rows)
        return (streams, places - 1), kept

    def episode_ends(self, rows: Rows) -> NDArray[np.int64]:
        """The place of the newest row of each row's episode: the one before the next beginning, or the last of all."""
        stride = int(self._ends.max()) + 1
        if self._begins is None:
            streams, slots = np.nonzero(self._columns["is_first"])
            self._begins = np.sort(streams * stride + self._place(streams, slots))
        origins = rows[0] * stride
        following = np.append(self._begins, self.num_streams * stride)
        next_begins = following[np.searchsorted(self._begins, origins + rows[1], side="right")]
        return np.minimum(next_begins - origins, self._ends[rows[0]]) - 1

    def ages(self, rows: Rows) -> NDArray[np.int64]:
        """How many rows of their streams are newer."""
        return self._ends[rows[0]] - 1 - rows[1]

    def _nth(self, chosen: NDArray[np.int64], counts: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, where the oldest `counts` of each stream are numbered stream after stream."""
        bounds = counts.cumsum()
        streams = np.searchsorted(bounds, chosen, side="right")
        return streams, (self._ends - self._filled)[streams] + chosen - (bounds - counts)[streams]

    def _place(self, streams: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of the row that stands in each slot of a ring now."""
        oldest = (self._ends - self._filled)[streams]
        return oldest + (slots - oldest) % self.places

    def _flat(self, rows: Rows) -> NDArray[np.int64]:
        return rows[0] * self.places + rows[1] % self.places

    # ---- what is in them

    def column(self, name: str, rows: Rows) -> Tree:
        where = (rows[0], rows[1] % self.places)
        return tree_map(lambda column: column[where], self._columns[name])

    def write(self, name: str, rows: Rows, new: NDArray[Any]) -> None:
        self._columns[name][rows[0], rows[1] % self.places] = new

    def draw_transitions(self, count: int, rng: np.random.Generator) -> tuple[Rows, NDArray[np.float64]]:
        """Draws rows whose action has a known outcome, by their priorities if they have any."""
        streams, places = np.empty((2, 0), dtype=np.int64)
        shares = np.empty(0)
        while (missing := count - len(shares)) > 0:
            # Some more than are wanted, since some have none: each draw costs more than its rows.
            drawn, new_shares = self._draw_any(missing + missing // 8 + 4, rng)
            kept = np.flatnonzero(self._has_outcome(drawn))[:missing]
            streams, places = np.append(streams, drawn[0][kept]), np.append(places, drawn[1][kept])
            shares = np.append(shares, new_shares[kept])
        return (streams, places), shares

    def has_transitions(self) -> bool:
        """Tells whether any row has a known outcome; where none has, `draw_transitions` would never end."""
        return bool(self._has_outcome(self._all_rows()).any())

    def _draw_any(self, count: int, rng: np.random.Generator) -> tuple[Rows, NDArray[np.float64]]:
        if self._priorities is not None:
            return self.draw(count, rng)
        return self.draw_uniformly(count, rng), np.ones(count)

    def _has_outcome(self, rows: Rows) -> NDArray[np.bool_]:
        """The newest row of a stream waits for its successor; a row that a restart follows has none."""
        (streams, places), written = self.following(rows, 2)
        after = (streams[1], places[1])
        return written[1] & ~self.column("is_first", after) & ~self.column("is_last", rows)

    def transitions(
        self, rows: Rows, *, n_steps: int, gamma: float, instead: Mapping[str, Tree] = MappingProxyType({})
    ) -> dict[str, Tree]:
        """n-step transitions from rows with an outcome: `obs`, `actions`, `rewards`, `next_obs` and `discounts`.

        `instead` holds columns `[n + 1, B]` to read in place of the stored ones.
        """
        ahead, written = self.following(rows, n_steps + 1)
        window = {name: self.column(name, ahead) for name in ("rewards", *ENDS) if name not in instead} | dict(instead)
        rewards, discounts, steps = n_step_rewards(window, written, n_steps=n_steps, gamma=gamma)
        return {
            "obs": self.column("obs", rows),
            "actions": self.column("actions", rows),
            "rewards": rewards,
            "next_obs": self.column("obs", (rows[0], rows[1] + steps)),
            "discounts": discounts,
        }

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the rows that are filled, stream by stream, oldest first."""
        rows = self._all_rows()
        state = {"columns": {name: self.column(name, rows) for name in self._columns}, "ends": self._ends.copy()}
        return state | ({} if self._priorities is None else {"priorities": self._priorities.get(self._flat(rows))})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Every row goes to the place where it was, so that equal random numbers draw equal rows."""
        self._columns, self._ends, self._begins = {}, state["ends"].copy(), None
        if not state["columns"]:
            return
        rows = self._all_rows()
        if any(len(leaf) != len(rows[0]) for leaf in tree_leaves(state["columns"])):
            raise ValueError(f"the columns do not have the {len(rows[0])} rows that `ends` counts")
        self._write(rows, state["columns"])
        self._restored = True
        if self._priorities is not None:
            self._priorities.set(self._flat(rows), state["priorities"])

    def _all_rows(self) -> Rows:
        filled = self._filled
        places = [np.arange(end - n, end) for end, n in zip(self._ends, filled, strict=True)]
        return np.repeat(np.arange(self.num_streams), filled), np.concatenate(places)

    def _write(self, rows: Rows, columns: dict[str, Tree]) -> None:
        if not self._columns:
            self._columns = tree_map(lambda leaf: self._empty(leaf, rows[0].ndim), columns)
        where = (rows[0], rows[1] % self.places)
        tree_map(lambda column, new: column.__setitem__(where, new), self._columns, columns)

    def _refuse_other_columns(self, columns: dict[str, Tree]) -> None:
        """Refuses columns of a checkpoint that have another form than the rows of the run."""
        stored, new = row_forms(self._columns, 2), row_forms(columns, 2)
        for name in stored.keys() | new.keys():
            if stored.get(name) != new.get(name):
                raise CheckpointError(
                    f"the stored replay's column {name!r} has {stored.get(name)}, the run gives {new.get(name)}; "
                    "go on from another checkpoint, or with store_replay false"
                )
        self._restored = False

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
