"""Schedules: every kind by hand, what is refused and how, and what holds for all of them."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.runtime.schedules import SCHEDULE_KINDS, Schedule, parse_schedule

ANNEALED = ("linear", "cosine", "exponential", "polynomial")


def schedule_from(spec: Any, *, base: float | None = None, horizon: int | None = 100) -> Schedule:
    return parse_schedule(spec, key="clip_coef_schedule", base=base, horizon=horizon)


@pytest.mark.parametrize(
    ("kind", "quarter", "middle"),
    [
        # From 0.8 to 0.2 over 100 steps.
        ("linear", 0.65, 0.5),  # 0.8 - 0.6/4
        ("cosine", 0.2 + 0.3 * (1 + math.sqrt(0.5)), 0.5),  # 0.2 + 0.6 * (1 + cos(pi/4)) / 2
        ("exponential", 0.8 / math.sqrt(2), 0.4),  # 0.8 * (1/4)^(1/4), 0.8 * (1/4)^(1/2)
        ("polynomial", 0.5375, 0.35),  # 0.2 + 0.6 * (3/4)^2, 0.2 + 0.6 * (1/2)^2
    ],
)
def test_annealed_kinds_by_hand(kind: str, quarter: float, middle: float) -> None:
    schedule = schedule_from({"kind": kind, "start": 0.8, "end": 0.2})
    assert schedule(0) == 0.8
    assert schedule(25) == pytest.approx(quarter)
    assert schedule(50) == pytest.approx(middle)
    assert schedule(100) == 0.2
    assert schedule(10**9) == 0.2


@pytest.mark.parametrize(
    "spec", [0.3, "constant", {"kind": "constant", "start": 0.3}, {"type": "constant", "value": 0.3}]
)
def test_every_way_to_write_a_constant(spec: Any) -> None:
    schedule = schedule_from(spec, base=0.3, horizon=None)
    assert [schedule(step) for step in (0, 50, 10**9)] == [0.3, 0.3, 0.3]


@pytest.mark.parametrize(
    ("kind", "middle", "end"),
    [("linear", 0.1, 0.0), ("cosine", 0.1, 0.0), ("polynomial", 0.05, 0.0), ("exponential", 0.02, 0.002)],
)
def test_a_bare_kind_goes_from_the_fixed_value_to_its_default_end(kind: str, middle: float, end: float) -> None:
    schedule = schedule_from(kind, base=0.2)
    assert schedule(0) == 0.2
    assert schedule(50) == pytest.approx(middle)
    assert schedule(100) == pytest.approx(end)


def test_polynomial_power() -> None:
    # 1 - (1 - x)^3 of the way from 8 to 0 at one half: 8 * (1/2)^3 = 1
    assert schedule_from({"kind": "polynomial", "start": 8, "end": 0, "power": 3})(50) == pytest.approx(1.0)


def test_piecewise_by_hand() -> None:
    schedule = schedule_from({"kind": "piecewise", "points": [[10, 1.0], [20, 3.0], [40, 0.0]]})
    #                                flat        half way    a point     half way    flat
    assert [schedule(step) for step in (0, 10, 15, 20, 30, 40, 99)] == [1.0, 1.0, 2.0, 3.0, 1.5, 0.0, 0.0]


def test_piecewise_steps_hold_each_value_until_the_next_point() -> None:
    schedule = schedule_from({"kind": "piecewise", "points": [[10, 1.0], [20, 3.0]], "interpolation": "step"})
    assert [schedule(step) for step in (0, 10, 19, 20, 99)] == [1.0, 1.0, 1.0, 3.0, 3.0]


def test_rounding_does_not_carry_a_schedule_past_its_end() -> None:
    # cos rounds to -1 at the last step but one, and 0.01 + (8/300 - 0.01) rounds to more than 8/300
    schedule = schedule_from({"kind": "cosine", "start": 0.01, "end": 8 / 300}, horizon=10**9)
    assert schedule(10**9 - 1) == 8 / 300


@pytest.mark.parametrize("name", ["horizon", "steps"])
def test_a_schedule_may_end_before_the_run(name: str) -> None:
    schedule = schedule_from({"kind": "linear", "start": 1.0, "end": 0.0, name: 10})
    assert (schedule(5), schedule(10), schedule(50)) == (0.5, 0.0, 0.0)


def test_a_schedule_may_begin_late() -> None:
    schedule = schedule_from({"kind": "linear", "start": 1.0, "end": 0.0, "begin": 60})
    assert (schedule(0), schedule(60), schedule(80), schedule(100)) == (1.0, 1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("linaer", "unknown kind 'linaer'; did you mean 'linear'?"),
        ("xyz", f"unknown kind 'xyz'; choose from {', '.join(SCHEDULE_KINDS)}"),
        ({"kind": 3}, "unknown kind 3"),
        ({"kind": "linear", "start": 1, "ende": 0}, "unknown key 'ende' for kind 'linear'; did you mean 'end'?"),
        ({"kind": "linear", "power": 2}, "unknown key 'power' for kind 'linear'"),
        ({"kind": "linear", "value": 1}, "unknown key 'value' for kind 'linear'"),
        ({"start": 1, "end": 0}, "missing key 'kind'"),
        ({"kind": "linear", "type": "linear"}, "'kind' and 'type' are two spellings of one key"),
        ({"kind": "linear", "start": 1, "steps": 5, "horizon": 5}, "'steps' and 'horizon' are two spellings"),
        ({"kind": "linear", "end": 0.0}, "missing key 'start'"),
        ("constant", "missing key 'start'"),
        ("piecewise", "a piecewise schedule needs 'points'"),
        ({"kind": "piecewise", "points": []}, "a piecewise schedule needs 'points'"),
        ({"kind": "piecewise", "points": [[0, 1], [5]]}, ".points[1]: expected a [step, value] pair, got [5]"),
        ({"kind": "piecewise", "points": [[5, 1], [5, 2]]}, ".points: steps must increase"),
        ({"kind": "piecewise", "points": [[0, math.nan]]}, ".points[0]: expected a finite number, got nan"),
        ({"kind": "piecewise", "points": [[0, 1]], "interpolation": "stp"}, "did you mean 'step'?"),
        ({"kind": "linear", "start": "0.1"}, ".start: expected a finite number, got '0.1'"),
        ({"kind": "linear", "start": True}, ".start: expected a finite number, got True"),
        ({"kind": "linear", "start": 1, "end": math.inf}, ".end: expected a finite number, got inf"),
        ({"kind": "linear", "start": 1, "end": None}, ".end: expected a finite number, got None"),
        ({"kind": "linear", "start": 1, "horizon": 0}, "needs 0 <= begin < horizon"),
        ({"kind": "linear", "start": 1, "begin": 100}, "needs 0 <= begin < horizon"),
        ({"kind": "exponential", "start": 1, "end": 0}, "an exponential needs start and end above 0"),
        ({"kind": "polynomial", "start": 1, "power": 0}, ".power: expected a number above 0"),
        (True, "expected a finite number, got True"),
        (math.nan, "expected a finite number, got nan"),
        ([0.1, 0.2], "expected a finite number, got [0.1, 0.2]"),
    ],
)
def test_a_bad_schedule_is_refused_by_name(spec: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"clip_coef_schedule.*{re.escape(complaint)}"):
        schedule_from(spec)


def test_annealing_needs_a_horizon() -> None:
    with pytest.raises(ValueError, match="clip_coef_schedule: missing key 'horizon'"):
        schedule_from("linear", base=1.0, horizon=None)


@given(
    kind=st.sampled_from(ANNEALED),
    start=st.floats(1e-6, 1e6),
    end=st.floats(1e-6, 1e6),
    begin=st.integers(0, 500),
    length=st.integers(1, 10**6),
    steps=st.lists(st.integers(0, 2 * 10**6), min_size=2, max_size=20),
)
@settings(max_examples=200, deadline=None)
def test_annealing_is_monotone_between_its_exact_ends(
    kind: str, start: float, end: float, begin: int, length: int, steps: list[int]
) -> None:
    spec = {"kind": kind, "start": start, "end": end, "begin": begin, "horizon": begin + length}
    schedule = schedule_from(spec)
    values = [schedule(step) for step in sorted(steps)]
    low, high = sorted((start, end))
    assert all(low <= value <= high for value in values)
    slack = 1e-12 * high
    rises = [later - earlier for earlier, later in pairwise(values)]
    assert all(rise >= -slack if end >= start else rise <= slack for rise in rises)
    assert schedule(begin) == start
    assert schedule(begin + length) == end


@given(
    points=st.dictionaries(st.integers(0, 10**6), st.floats(-1e6, 1e6), min_size=1, max_size=6),
    step=st.integers(0, 2 * 10**6),
    interpolation=st.sampled_from(["linear", "step"]),
)
@settings(max_examples=100, deadline=None)
def test_piecewise_passes_through_its_points_and_stays_among_them(
    points: dict[int, float], step: int, interpolation: str
) -> None:
    pairs = sorted(points.items())
    schedule = schedule_from({"kind": "piecewise", "points": pairs, "interpolation": interpolation})
    assert [schedule(at) for at, _ in pairs] == [value for _, value in pairs]
    assert min(points.values()) - 1e-6 <= schedule(step) <= max(points.values()) + 1e-6
