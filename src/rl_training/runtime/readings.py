"""The metrics of a run as texts: short numbers, what belongs together, and the evaluations that stay in view."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Integral, Real

Row = Mapping[str, object]
EVALUATION = "eval_"
# Each is part of another line, or of the progress.
TOLD_ELSEWHERE = {"global_step", "seconds", "cpu_seconds", "return_std", "return_min", "return_max", "gradient_steps"}
LABELS = {"return_mean": "return", "episode_length_mean": "length", "success_rate": "success"}


class Readings:
    """The latest of every metric. Controls that never move are left out: they were told at the start."""

    def __init__(self, controls: Collection[str] = (), constants: Collection[str] = ()) -> None:
        self._controls = controls
        self._constants = constants
        self._row: dict[str, object] = {}
        self._evaluations: list[tuple[int, Row]] = []

    def take(self, row: Row, step: int) -> None:
        if is_evaluation(row):
            self._evaluations.append((step, row))
        else:
            self._row |= row

    def groups(self) -> dict[str, dict[str, str]]:
        """The metrics, formatted, by what they tell about the run; only groups that have any."""
        groups: dict[str, dict[str, str]] = {"returns": {}, "losses": {}, "controls": {}, "diagnostics": {}}
        for name, value in self._row.items():
            if name not in TOLD_ELSEWHERE and name not in self._constants:
                groups[self._group_of(name)][_label(name)] = _with_spread(name, value, self._row)
        groups["returns"] |= self.evaluations()
        return {name: metrics for name, metrics in groups.items() if metrics}

    def evaluations(self) -> dict[str, str]:
        """The last evaluation and the best, with the steps at which they were."""
        known = [(step, row) for step, row in self._evaluations if is_finite(row.get("eval_return_mean"))]
        if not known:
            return {}
        best = max(known, key=lambda found: float(str(found[1]["eval_return_mean"])))
        return {"evaluation": _evaluation_text(*known[-1]), "best": _evaluation_text(*best)}

    def line(self) -> str:
        """The returns, losses and controls that move, in one line."""
        groups = self.groups()
        shown = {
            name: text for group in ("returns", "losses", "controls") for name, text in groups.get(group, {}).items()
        }
        return " ".join(f"{name} {text}" for name, text in shown.items() if name not in ("episodes", "best"))

    def results(self) -> list[tuple[str, str]]:
        """(step, return) of every evaluation, for the table that stays."""
        return [(f"{step:,}", _spread(row, "eval_return")) for step, row in self._evaluations]

    def _group_of(self, name: str) -> str:
        if name in self._controls:
            return "controls"
        if "loss" in name:
            return "losses"
        told = ("return", "episode", "success")
        return "returns" if any(word in name for word in told) else "diagnostics"


def is_evaluation(row: Row) -> bool:
    return any(name.startswith(EVALUATION) for name in row)


def is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def number_text(value: object) -> str:
    """Four digits of a number, or all of it if it is whole or large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return "-" if value is None else str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}"
    number = float(value)
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.4g}"


def duration_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` when there are no hours."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def progress_text(step: int, total_steps: int, speed: float | None) -> str:
    """`step 20,480/100,000 (20%) 18,200 steps/s ETA 0:04`; without a speed, no more than the first part.

    The last rollout may go beyond the budget, and that is all the same 100 %.
    """
    text = f"step {step:,}/{total_steps:,} ({min(100, 100 * step // max(total_steps, 1))}%)"
    if speed is None:
        return text
    return f"{text} {number_text(speed)} steps/s ETA {duration_text((total_steps - step) / speed)}"


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("return_mean/", "return "))


def _with_spread(name: str, value: object, row: Row) -> str:
    if name == "success_rate" and is_finite(value):
        return f"{float(str(value)):.0%}"
    if name != "return_mean":
        return number_text(value)
    extremes = [row.get("return_min"), row.get("return_max")]
    spread = _spread(row, "return")
    return (
        f"{spread}, {number_text(extremes[0])} to {number_text(extremes[1])}"
        if all(map(is_finite, extremes))
        else spread
    )


def _evaluation_text(step: int, row: Row) -> str:
    return f"{_spread(row, 'eval_return')} at {step:,}"


def _spread(row: Row, name: str) -> str:
    """`123.4 ± 20.1`."""
    deviation = row.get(f"{name}_std")
    mean = number_text(row.get(f"{name}_mean"))
    return f"{mean} ± {number_text(deviation)}" if is_finite(deviation) else mean
