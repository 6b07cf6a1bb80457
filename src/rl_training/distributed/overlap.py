"""How far collection and learning happen at the same time, by the learner's clock."""

from __future__ import annotations

import time
from collections import deque


class Overlap:
    """Workers report how long they worked; that they began when they were sent for is assumed."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._learning: deque[tuple[float, float]] = deque(maxlen=4 * num_workers + 64)
        self._learning_since: float | None = None
        self._learned = self._waited = self._overlapped = 0.0
        self._waiting_since = 0.0

    def start_learning(self) -> None:
        self._learning_since = time.monotonic()
        self._waited += self._learning_since - self._waiting_since

    def stop_learning(self) -> None:
        self._waiting_since = time.monotonic()
        if self._learning_since is not None:
            self._learning.append((self._learning_since, self._waiting_since))
            self._learned += self._waiting_since - self._learning_since

    def add_work(self, began: float, ended: float) -> None:
        """Time that a worker spent on a fragment, of which a part may have been the learner's too."""
        shared = (min(ended, last) - max(began, first) for first, last in self._learning)
        self._overlapped += sum(part for part in shared if part > 0)

    def flush(self) -> dict[str, float]:
        """Since the last call: the share of the learning time in which a worker collected, and of the waiting."""
        learned, waited, overlapped = self._learned, self._waited, self._overlapped
        self._learned = self._waited = self._overlapped = 0.0
        if not learned:
            return {}
        # Work is counted when its fragment arrives, which may be after the learning beside it.
        overlap = min(overlapped / (learned * self.num_workers), 1.0)
        return {"overlap": overlap, "waiting_share": waited / (learned + waited)}
