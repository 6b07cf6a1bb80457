"""`Priorities`: prioritised replay (Schaul et al., 2016), whose draws and changes cost O(log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rl_training.data.segment_tree import SegmentTree

Slots = NDArray[np.int64]


class Priorities:
    """A priority for each of `capacity` slots; 0 where nothing may be drawn."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self._alpha = alpha
        self._weights = SegmentTree(capacity, np.add)  # priority^alpha
        self._priorities = SegmentTree(capacity, np.maximum)

    def add(self, slots: Slots) -> None:
        """New rows begin with the highest priority there is, so that each is soon replayed."""
        self.set(slots, np.full(len(slots), self._priorities.total or 1.0))

    def clear(self, slots: Slots) -> None:
        self.set(slots, np.zeros(len(slots)))

    def set(self, slots: Slots, priorities: NDArray[np.floating]) -> None:
        if not len(slots):
            return
        self._priorities[slots] = priorities
        self._weights[slots] = np.where(priorities > 0.0, np.asarray(priorities, dtype=np.float64) ** self._alpha, 0.0)

    def get(self, slots: Slots) -> NDArray[np.float64]:
        return self._priorities[slots]

    def masses(self, spans: Slots) -> NDArray[np.float64]:
        """The sums of priority^alpha over spans `[S, 2]` of slots."""
        return self._weights.before(spans[:, 1]) - self._weights.before(spans[:, 0])

    def draw_within(self, spans: Slots, count: int, rng: np.random.Generator) -> tuple[Slots, NDArray[np.float64]]:
        """Slots of the spans in proportion to priority^alpha, and the probability of each."""
        bounds = np.cumsum(self.masses(spans))
        mass = rng.random(count) * bounds[-1]
        span = np.minimum(np.searchsorted(bounds, mass, side="right"), len(spans) - 1)
        below = np.concatenate([[0.0], bounds])[span]
        slots = self._weights.find(self._weights.before(spans[span, 0]) + mass - below)
        return slots, self._weights[slots] / bounds[-1]

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Slots, NDArray[np.float64]]:
        """Slots in proportion to priority^alpha, and the probability of each."""
        slots = self._weights.find(rng.random(count) * self._weights.total)
        return slots, self._weights[slots] / self._weights.total
