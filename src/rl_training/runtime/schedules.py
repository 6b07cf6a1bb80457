"""Schedules: a scalar as a function of the environment step, read from a config and refused there if it is wrong."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Protocol

from rl_training.blame import told
from rl_training.errors import did_you_mean
from rl_training.experiment.validation import LARGEST_NUMBER
from rl_training.naming import PYTHON_PREFIX, ask_again
from rl_training.runtime.kl_adaptive import KLAdaptive


class Schedule(Protocol):
    """A value for every step: monotone between its `breakpoints`, flat before the first and after the last."""

    @property
    def breakpoints(self) -> tuple[float, ...]: ...

    def __call__(self, step: float) -> float: ...


@dataclass(frozen=True)
class Constant:
    """One value at every step."""

    value: float
    breakpoints: tuple[float, ...] = (0.0,)

    def __call__(self, step: float) -> float:
        return self.value


@dataclass(frozen=True)
class Annealed:
    """Moves from exactly `start`, up to step `begin`, to exactly `end`, from step `horizon` on."""

    kind: str
    start: float
    end: float
    begin: float
    horizon: float
    power: float = 2.0

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return (self.begin, self.horizon)

    def __call__(self, step: float) -> float:
        progress = (step - self.begin) / (self.horizon - self.begin)
        if progress <= 0.0:
            return self.start
        if progress >= 1.0:
            return self.end
        # Near its end a cosine is flat, and rounding may carry it past: out of bounds, if `end` is the bound.
        low, high = sorted((self.start, self.end))
        return min(max(_CURVES[self.kind](self, progress), low), high)


@dataclass(frozen=True)
class Piecewise:
    """Linear between `(step, value)` points, or holding each value until the next point; flat outside."""

    points: tuple[tuple[float, float], ...]
    interpolation: str = "linear"

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return tuple(step for step, _ in self.points)

    def __call__(self, step: float) -> float:
        after = bisect_right(self.breakpoints, step)
        left, value = self.points[max(after - 1, 0)]
        if self.interpolation == "step" or after in (0, len(self.points)):
            return value
        right, next_value = self.points[after]
        return value + (next_value - value) * (step - left) / (right - left)


@dataclass(frozen=True)
class Function:
    """A user's function of progress, which goes from 0 to 1 at `horizon`. It is checked at a hundred points only."""

    function: Callable[[float], float]
    horizon: float
    key: str

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return tuple(self.horizon * point / 100 for point in range(101))

    def __call__(self, step: float) -> float:
        progress = min(max(step / self.horizon, 0.0), 1.0)
        try:
            value = self.function(progress)
        except Exception as error:  # the function is the user's
            raise ValueError(f"{self.key}: at progress {progress:g} it raised {told(error)}") from error
        return finite_number(value, f"{self.key} at progress {progress:g}")


def _linear(s: Annealed, progress: float) -> float:
    return s.start + (s.end - s.start) * progress


def _cosine(s: Annealed, progress: float) -> float:
    return s.start + (s.end - s.start) * 0.5 * (1.0 - math.cos(math.pi * progress))


def _exponential(s: Annealed, progress: float) -> float:
    return s.start * (s.end / s.start) ** progress


def _polynomial(s: Annealed, progress: float) -> float:
    return s.end + (s.start - s.end) * (1.0 - progress) ** s.power


_CURVES: dict[str, Callable[[Annealed, float], float]] = {
    "linear": _linear,
    "cosine": _cosine,
    "exponential": _exponential,
    "polynomial": _polynomial,
}

_ANNEALED_KEYS = {"start": "start", "end": "end", "begin": "begin", "horizon": "horizon", "steps": "horizon"}

# For each kind, the keys it takes besides `kind`: accepted spelling -> canonical spelling.
_KEYS: dict[str, dict[str, str]] = {
    "constant": {"start": "start", "value": "start"},
    "linear": _ANNEALED_KEYS,
    "cosine": _ANNEALED_KEYS,
    "exponential": _ANNEALED_KEYS,
    "polynomial": {**_ANNEALED_KEYS, "power": "power"},
    "piecewise": {"points": "points", "interpolation": "interpolation"},
    "kl_adaptive": {name: name for name in ("start", "target", "min", "max", "factor")},
}

_KL_DEFAULTS = {"target": 0.01, "min": 1e-5, "max": 1e-2, "factor": 1.5}  # those of rsl_rl

SCHEDULE_KINDS = tuple(_KEYS)


def parse_schedule(
    spec: Any, *, key: str, base: float | None, horizon: float | None, needs_end: bool = False
) -> Schedule:
    """The schedule that `spec` describes: a number, a kind, a mapping or a function. Errors name the config `key`.

    `base` is the fixed value, from which a schedule without `start` departs; `horizon` is the length of the run.
    Without `end` a schedule goes to 0 (an exponential one to a hundredth), unless it `needs_end`.
    """
    if callable(spec):
        if horizon is None:
            raise ValueError(f"{key}: a function of progress needs total_timesteps")
        return Function(spec, float(horizon), key)
    if isinstance(spec, str) and spec.startswith(PYTHON_PREFIX):
        raise ask_again(key, spec, "algo_kwargs (or key) of the same name")
    if not isinstance(spec, str | Mapping):
        return Constant(finite_number(spec, key))
    kind, options = _kind_and_options(spec, key)
    if kind == "constant":
        return Constant(_start(kind, options, key, base))
    if kind == "piecewise":
        return _parse_piecewise(options, key)
    if kind == "kl_adaptive":
        return _parse_kl_adaptive(options, key, base)
    if needs_end and "end" not in options:
        raise ValueError(f"{key}: missing key 'end'; this number is not one that is annealed to 0")
    return _parse_annealed(kind, options, key, base, horizon)


def finite_number(value: Any, key: str) -> float:
    """`value` as a float, refusing text, booleans, NaN and infinity."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # an integer larger than any float
        number = math.inf
    if not abs(number) <= LARGEST_NUMBER:
        raise ValueError(f"{key}: expected a finite number, got {value!r:.60}")
    return number


def rename_aliases(raw: Mapping[str, Any], spellings: Mapping[str, str], *, where: str = "") -> dict[str, Any]:
    """`raw` with each alias under its canonical name; names without a canonical one stay as they are."""
    written: dict[str, str] = {}
    for name in raw:
        canonical = spellings.get(name, name)
        if canonical in written:
            raise ValueError(f"{where}{written[canonical]!r} and {name!r} are two spellings of one key; give only one")
        written[canonical] = name
    return {canonical: raw[name] for canonical, name in written.items()}


def _kind_and_options(spec: str | Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
    where = f"{key}: "
    raw = {"kind": spec} if isinstance(spec, str) else rename_aliases(spec, {"type": "kind"}, where=where)
    if "kind" not in raw:
        raise ValueError(f"{key}: missing key 'kind'; expected one of {', '.join(SCHEDULE_KINDS)}")
    kind = raw.pop("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ValueError(f"{key}: unknown kind {kind!r}; {did_you_mean(kind, SCHEDULE_KINDS)}")
    for name in raw:
        if name not in _KEYS[kind]:
            raise ValueError(f"{key}: unknown key {name!r} for kind {kind!r}; {did_you_mean(name, _KEYS[kind])}")
    return kind, rename_aliases(raw, _KEYS[kind], where=where)


def _start(kind: str, options: Mapping[str, Any], key: str, base: float | None) -> float:
    if "start" in options:
        return finite_number(options["start"], f"{key}.start")
    if base is None:
        raise ValueError(f"{key}: missing key 'start' for kind {kind!r}, and there is no fixed value to start from")
    return finite_number(base, f"{key} (the fixed value it starts from)")


def _parse_annealed(
    kind: str, options: Mapping[str, Any], key: str, base: float | None, horizon: float | None
) -> Annealed:
    start = _start(kind, options, key, base)
    given = {name: finite_number(value, f"{key}.{name}") for name, value in options.items()}
    end = given.get("end", 0.01 * start if kind == "exponential" else 0.0)
    begin, power = given.get("begin", 0.0), given.get("power", 2.0)
    last = given.get("horizon", horizon)
    if last is None:
        raise ValueError(f"{key}: missing key 'horizon', and there is no total_timesteps to take it from")
    if begin < 0.0 or last <= begin:
        raise ValueError(f"{key}: needs 0 <= begin < horizon, got begin {begin} and horizon {last}")
    if kind == "exponential" and min(start, end) <= 0.0:
        raise ValueError(f"{key}: an exponential needs start and end above 0, got start {start} and end {end}")
    if power <= 0.0:
        raise ValueError(f"{key}.power: expected a number above 0, got {power}")
    return Annealed(kind, start, end, begin, float(last), power)


def _parse_piecewise(options: Mapping[str, Any], key: str) -> Piecewise:
    points = options.get("points")
    if not isinstance(points, Sequence) or isinstance(points, str) or not points:
        raise ValueError(f"{key}: a piecewise schedule needs 'points', a list of [step, value] pairs, got {points!r}")
    pairs = tuple(_point(point, f"{key}.points[{i}]") for i, point in enumerate(points))
    if any(later <= earlier for (earlier, _), (later, _) in pairwise(pairs)):
        raise ValueError(f"{key}.points: steps must increase, got {[step for step, _ in pairs]}")
    interpolation = options.get("interpolation", "linear")
    if interpolation not in ("linear", "step"):
        raise ValueError(
            f"{key}: unknown interpolation {interpolation!r}; {did_you_mean(interpolation, ('linear', 'step'))}"
        )
    return Piecewise(pairs, interpolation)


def _parse_kl_adaptive(options: Mapping[str, Any], key: str, base: float | None) -> KLAdaptive:
    start = _start("kl_adaptive", options, key, base)
    given = _KL_DEFAULTS | {name: finite_number(value, f"{key}.{name}") for name, value in options.items()}
    target, low, high, factor = (given[name] for name in _KL_DEFAULTS)
    if target <= 0.0 or factor <= 1.0:
        raise ValueError(f"{key}: needs target above 0 and factor above 1, got target {target} and factor {factor}")
    if not 0.0 < low <= start <= high:
        raise ValueError(f"{key}: needs 0 < min <= start <= max, got min {low}, start {start} and max {high}")
    return KLAdaptive(start, target, low, high, factor)


def _point(point: Any, key: str) -> tuple[float, float]:
    if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
        raise ValueError(f"{key}: expected a [step, value] pair, got {point!r}")
    step = finite_number(point[0], key)
    if step < 0.0:
        raise ValueError(f"{key}: a step is 0 or more, got {point[0]!r}")
    return step, finite_number(point[1], key)
