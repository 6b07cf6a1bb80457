"""`Meter`: means of metrics over the logging interval, and the watch for numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rl_training.errors import NonFiniteError


class Meter:
    def __init__(self) -> None:
        self._pending: list[tuple[str, float | Tensor]] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, float | Tensor]) -> None:
        self._pending += metrics.items()

    def settle(self) -> None:
        """Takes in what was added; tensors are read in one go, once an iteration."""
        tensors = [value.float() for _, value in self._pending if isinstance(value, Tensor)]
        numbers = iter(torch.stack(tensors).tolist() if tensors else [])
        for name, value in self._pending:
            number = next(numbers) if isinstance(value, Tensor) else float(value)
            if not math.isfinite(number):
                raise NonFiniteError(f"{name} became {number}")
            self._sums[name] = self._sums.get(name, 0.0) + number
            self._counts[name] = self._counts.get(name, 0) + 1
        self._pending.clear()

    def flush(self) -> dict[str, float]:
        """The means since the last flush."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        return means

    def state_dict(self) -> dict[str, Mapping[str, float]]:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        self._sums = {name: float(total) for name, total in state["sums"].items()}
        self._counts = {name: int(count) for name, count in state["counts"].items()}
