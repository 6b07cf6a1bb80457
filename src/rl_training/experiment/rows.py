"""A row of metrics, and its numbers as the services that plot them take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TypeGuard

Value = float | int | str | None
Row = Mapping[str, Value]
STEP_KEY = "global_step"


def scalars(row: Row) -> dict[str, float]:
    """The row's finite numbers without its step, under `train/` unless their name has a group."""
    return {
        name if "/" in name else f"train/{name}": float(value)
        for name, value in row.items()
        if name != STEP_KEY and _is_finite(value)
    }


def _is_finite(value: Value) -> TypeGuard[float]:
    return isinstance(value, Real) and math.isfinite(value)
