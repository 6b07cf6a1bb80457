"""`Ratio`: how many updates the steps of the environments have earned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Ratio:
    """Keeps the fraction of an update that is left over, so that none is lost."""

    def __init__(self) -> None:
        self._owed = 0.0

    def __call__(self, steps: int, updates_per_step: float) -> int:
        """The updates that are due after so many steps more."""
        self._owed += steps * updates_per_step
        due = int(self._owed)
        self._owed -= due
        return due

    def state_dict(self) -> dict[str, Any]:
        return {"owed": self._owed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._owed = float(state["owed"])
