"""`TrajectoryReplay`: a `StreamReplay` for planners: prioritised windows, and rows whose targets are written anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.replay import Rows, StreamReplay
from rl_training.data.trees import Tree, tree_map

PRIORITY = "priority"  # a column of this name decides how often a window begins at a row


class TrajectoryReplay(StreamReplay):
    """Rows are (stream, place), the place counted from the stream's first row ever.

    Everything is drawn by age, not by where the ring has it: a buffer that was saved and loaded draws the same.
    """

    def rows(self) -> Rows:
        """All that is filled, stream by stream, oldest first."""
        filled = self._filled
        places = [np.arange(end - n, end) for end, n in zip(self._ends, filled, strict=True)]
        return np.repeat(np.arange(self.num_streams), filled), np.concatenate(places)

    def draw(self, count: int, rng: np.random.Generator, *, alpha: float) -> tuple[Rows, NDArray[np.float64]]:
        """Rows in proportion to priority^alpha, and count · probability of each."""
        streams, places = self.rows()
        priorities = self.column(PRIORITY, (streams, places)).astype(np.float64)
        weights = np.where(priorities > 0.0, priorities**alpha, 0.0)  # last rows have priority 0: no action was taken
        bounds = weights.cumsum()
        chosen = np.minimum(np.searchsorted(bounds, rng.random(count) * bounds[-1], side="right"), len(bounds) - 1)
        return (streams[chosen], places[chosen]), weights[chosen] * len(bounds) / bounds[-1]

    def highest_priority(self) -> float:
        """What new rows begin with, so that each is soon replayed."""
        return float(self.column(PRIORITY, self.rows()).max()) if len(self) else 1.0

    def draw_uniformly(self, count: int, rng: np.random.Generator) -> Rows:
        """Of all rows, last ones too."""
        streams, places = self.rows()
        chosen = rng.integers(len(places), size=count)
        return streams[chosen], places[chosen]

    def column(self, name: str, rows: Rows) -> Tree:
        where = (rows[0], rows[1] % self.places)
        return tree_map(lambda column: column[where], self._columns[name])

    def write(self, name: str, rows: Rows, new: NDArray[Any]) -> None:
        self._columns[name][rows[0], rows[1] % self.places] = new

    def following(self, rows: Rows, length: int) -> tuple[Rows, NDArray[np.bool_]]:
        """The `[length, batch]` rows from each of the rows on, and which of them were written yet."""
        streams, places = rows
        ahead = places + np.arange(length)[:, None]
        newest = self._ends[streams] - 1
        return (np.broadcast_to(streams, ahead.shape), np.minimum(ahead, newest)), ahead <= newest

    def ages(self, rows: Rows) -> NDArray[np.int64]:
        """How many rows of their streams are newer."""
        return self._ends[rows[0]] - 1 - rows[1]

    def predecessors(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """The rows before, and which of them are still there and of the same episode."""
        streams, places = rows
        kept = (places > (self._ends - self._filled)[streams]) & ~self.column("is_first", rows)
        return (streams, places - 1), kept
