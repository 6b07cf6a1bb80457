"""Numbers in `info`, which environments tell beside observation and reward, averaged over each episode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUCCESS = "is_success"  # a fact about the whole episode: its last value counts
NESTED = ("episode", "final_info")  # mappings whose numbers count as the step's own
NO_QUANTITIES = ("env_id", "to_play")  # the numbers of an environment and of a player, whose means say nothing
NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)

InfoRow = tuple[Any, Mapping[str, Any]]  # the index of one environment or of several, and their numbers by key


def numbers_in(info: Any) -> dict[str, float]:
    """The numbers of one environment's `info`."""
    found: dict[str, float] = {}
    if isinstance(info, Mapping):
        for key, value in info.items():
            if key in NO_QUANTITIES:
                continue
            if isinstance(value, NUMBERS):
                found[str(key)] = float(value)
            elif key in NESTED:
                found |= numbers_in(value)
    return found


def columns_in(info: Mapping[str, Any], rows: NDArray[np.bool_]) -> Iterator[InfoRow]:
    """The numbers of a vector environment's `info`, in those rows of which its masks (`_key`) say that they are."""
    for key, value in info.items():
        if key.startswith("_") or key in NO_QUANTITIES:
            continue
        present = rows & np.asarray(info.get(f"_{key}", True), dtype=bool)
        if key in NESTED and isinstance(value, Mapping):
            yield from columns_in(value, present)
        elif isinstance(value, np.ndarray) and value.shape == rows.shape and value.dtype.kind in "biuf":
            chosen = present.nonzero()[0]
            if len(chosen):
                yield chosen, {key: value[chosen]}


class InfoMeans:
    """Means over the running episodes of `num_envs` environments."""

    def __init__(self, num_envs: int) -> None:
        self._num_envs = num_envs
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._counts: dict[str, NDArray[np.int64]] = {}

    def add(self, rows: tuple[InfoRow, ...]) -> None:
        for index, numbers in rows:
            for key, value in numbers.items():
                if key not in self._sums:
                    self._sums[key] = np.zeros(self._num_envs)
                    self._counts[key] = np.zeros(self._num_envs, dtype=np.int64)
                if key == SUCCESS:
                    self._sums[key][index], self._counts[key][index] = value, 1
                else:
                    self._sums[key][index] += value
                    self._counts[key][index] += 1

    def means(self, index: int) -> tuple[tuple[str, float], ...]:
        """(key, mean) of one environment's episode so far; what is not finite is left out."""
        told = ((key, counts[index]) for key, counts in self._counts.items() if counts[index])
        means = ((key, float(self._sums[key][index] / count)) for key, count in told)
        return tuple((key, mean) for key, mean in means if math.isfinite(mean))

    def restart(self, done: NDArray[np.bool_]) -> None:
        for numbers in (*self._sums.values(), *self._counts.values()):
            numbers[done] = 0

    def state_dict(self) -> dict[str, Any]:
        copies = {key: (self._sums[key].copy(), self._counts[key].copy()) for key in self._sums}
        return {key: {"sum": total, "count": count} for key, (total, count) in copies.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums = {key: np.array(own["sum"], dtype=np.float64) for key, own in state.items()}
        self._counts = {key: np.array(own["count"], dtype=np.int64) for key, own in state.items()}
        if any(numbers.shape != (self._num_envs,) for numbers in (*self._sums.values(), *self._counts.values())):
            raise ValueError(f"infos must have a number for each of {self._num_envs} environments")
