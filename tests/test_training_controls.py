"""Controls: keys and aliases, schedules with warm-up, bounds, and the fixed functions that read a config."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.ppo import PPOParams
from rl_training.runtime.controls import (
    CLIP_COEF,
    ENT_COEF,
    GAE_LAMBDA,
    GAMMA,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    NUM_SIMULATIONS,
    ROOT_EXPLORATION_FRACTION,
    TARGET_KL,
    TEMPERATURE,
    VF_COEF,
    Control,
    ControlSet,
    ResolvedControl,
    canonical_keys,
    control_keys,
    resolve_clip_coefficient,
    resolve_entropy_coefficient,
    resolve_temperature,
)
from rl_training.runtime.schedules import Annealed

ALL_CONTROLS = (
    LEARNING_RATE,
    CLIP_COEF,
    ENT_COEF,
    VF_COEF,
    GAMMA,
    GAE_LAMBDA,
    TARGET_KL,
    MAX_GRAD_NORM,
    TEMPERATURE,
    NUM_SIMULATIONS,
    ROOT_EXPLORATION_FRACTION,
)

RESOLVERS = [
    pytest.param(resolve_clip_coefficient, "clip_coef", id="clip_coef"),
    pytest.param(resolve_entropy_coefficient, "ent_coef", id="ent_coef"),
    pytest.param(resolve_temperature, "temperature", id="temperature"),
]


def resolve(control: Control, step: int, *, horizon: int | None = 100, **values: Any) -> float:
    return ControlSet.parse((control,), values, horizon=horizon).resolve(step)[control.name]


def test_a_control_is_set_by_three_keys_for_each_of_its_names() -> None:
    assert control_keys(CLIP_COEF) == (
        "clip_coef",
        "clip_coef_schedule",
        "clip_coef_warmup_steps",
        "clip_range",
        "clip_range_schedule",
        "clip_range_warmup_steps",
    )


def test_no_two_controls_share_a_key() -> None:
    keys = [key for control in ALL_CONTROLS for key in control_keys(control)]
    assert len(keys) == len(set(keys))


def test_aliases_become_canonical_and_other_keys_stay() -> None:
    raw = {"clip_range": 0.1, "entropy_coef_schedule": "linear", "num_epochs": 4}
    expected = {"clip_coef": 0.1, "ent_coef_schedule": "linear", "num_epochs": 4}
    assert canonical_keys(raw, ALL_CONTROLS) == expected


@pytest.mark.parametrize("suffix", ["", "_schedule", "_warmup_steps"])
def test_two_spellings_of_one_key_are_refused(suffix: str) -> None:
    with pytest.raises(ValueError, match=f"'clip_range{suffix}' and 'clip_coef{suffix}' are two spellings"):
        canonical_keys({f"clip_range{suffix}": 1, f"clip_coef{suffix}": 1}, (CLIP_COEF,))


def test_a_value_and_a_schedule_may_be_spelled_differently() -> None:
    config = {"clip_coef": 0.4, "clip_range_schedule": "linear", "total_timesteps": 100}
    assert resolve_clip_coefficient(config, step=50, default=9.0) == pytest.approx(0.2)


def test_a_fixed_value_is_itself_at_every_step_and_needs_no_horizon() -> None:
    assert [resolve(CLIP_COEF, step, horizon=None, clip_coef=0.2) for step in (0, 10**9)] == [0.2, 0.2]


def test_the_horizon_of_a_schedule_is_the_run_unless_it_says_otherwise() -> None:
    assert resolve(ENT_COEF, 50, ent_coef=0.1, ent_coef_schedule="linear") == pytest.approx(0.05)
    override = {"kind": "linear", "horizon": 200}
    assert resolve(ENT_COEF, 50, ent_coef=0.1, ent_coef_schedule=override) == pytest.approx(0.075)


@pytest.mark.parametrize(("step", "value"), [(0, 0.05), (1, 0.1), (3, 0.2), (4, 0.2), (99, 0.2)])
def test_warmup_alone_ramps_the_fixed_value(step: int, value: float) -> None:
    # 0.2 * min((step + 1) / 4, 1)
    assert resolve(CLIP_COEF, step, clip_coef=0.2, clip_coef_warmup_steps=4) == pytest.approx(value)


def test_warmup_multiplies_the_schedule() -> None:
    # Linear 1 -> 0 over 100, warm-up 20: step 9: 0.91 * 10/20;  step 19: 0.81 * 1;  step 50: 0.5
    keys: dict[str, Any] = {"learning_rate": 1.0, "learning_rate_schedule": "linear", "learning_rate_warmup_steps": 20}
    values = [resolve(LEARNING_RATE, step, **keys) for step in (9, 19, 50, 100)]
    assert values == pytest.approx([0.455, 0.81, 0.5, 0.0])


@pytest.mark.parametrize("warmup", [-1, 2.5, True, "10", math.nan])
def test_warmup_is_a_whole_number_of_steps(warmup: Any) -> None:
    with pytest.raises(ValueError, match=r"^clip_coef_warmup_steps"):
        resolve(CLIP_COEF, 0, clip_coef=0.2, clip_coef_warmup_steps=warmup)


@pytest.mark.parametrize("warmup", [None, 0])
def test_no_warmup_changes_nothing(warmup: int | None) -> None:
    assert resolve(CLIP_COEF, 0, clip_coef=0.2, clip_coef_warmup_steps=warmup) == 0.2


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, True, "0.2"])
def test_a_bad_fixed_value_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^clip_coef or clip_range: "):
        resolve(CLIP_COEF, 0, clip_coef=value)


@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "linear", "start": -0.1},
        {"kind": "linear", "start": 0.1, "end": -0.1},
        {"kind": "piecewise", "points": [[0, 0.1], [50, -0.1], [100, 0.1]]},
        {"kind": "linear", "start": 0.1, "end": -0.1, "horizon": 10**6},
    ],
)
def test_a_schedule_that_turns_negative_is_refused_before_the_run(schedule: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^clip_coef_schedule .*: -0.1 at step \d+ is not a finite number of at least 0"
    ):
        ControlSet.parse((CLIP_COEF,), {"clip_coef_schedule": schedule}, horizon=100)


@pytest.mark.parametrize("control", [GAMMA, GAE_LAMBDA, ROOT_EXPLORATION_FRACTION])
def test_a_fraction_is_at_most_one(control: Control) -> None:
    assert ControlSet.parse((control,), {control.name: 1.0}, horizon=100).resolve(0) == {control.name: 1.0}
    with pytest.raises(ValueError, match=f"^{control.name}: 1.01 at step 0 is not .* at most 1"):
        ControlSet.parse((control,), {control.name: 1.01}, horizon=100)


def test_a_value_out_of_bounds_during_the_run_names_key_value_and_step() -> None:
    """Parsing checks every breakpoint; this is for a schedule that was not parsed."""
    to_minus_one = Annealed("linear", start=1.0, end=-1.0, begin=0.0, horizon=2.0)
    control = ResolvedControl(CLIP_COEF, to_minus_one, warmup_steps=0, key="clip_coef_schedule")
    assert control.resolve(1) == 0.0
    with pytest.raises(ValueError, match=r"^clip_coef_schedule: -1.0 at step 2 "):
        control.resolve(2)


def test_an_integer_control_is_rounded_to_an_int() -> None:
    # Linear 50 -> 10 over 100 steps: at step 33, 36.8
    spec = {"kind": "linear", "start": 50, "end": 10}
    value = resolve(NUM_SIMULATIONS, 33, num_simulations_schedule=spec)
    assert value == 37
    assert isinstance(value, int)


def test_warmup_starts_at_the_lowest_admissible_value() -> None:
    # 50 * 1/100 = 0.5 simulations would be none at all; 50 * 50/100 = 25
    keys: dict[str, Any] = {"num_simulations": 50, "num_simulations_warmup_steps": 100}
    assert [resolve(NUM_SIMULATIONS, step, **keys) for step in (0, 49, 99)] == [1, 25, 50]


def test_a_schedule_below_one_simulation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_simulations_schedule: 0.0 at step 100 is not .* at least 1"):
        resolve(NUM_SIMULATIONS, 0, num_simulations=50, num_simulations_schedule="linear")


def test_an_optional_control_that_is_off_is_neither_applied_nor_logged() -> None:
    assert ControlSet.parse((TARGET_KL,), {"target_kl": None}, horizon=100).resolve(0) == {}
    assert ControlSet.parse((TARGET_KL,), {}, horizon=100).resolve(0) == {}
    assert resolve(TARGET_KL, 0, target_kl=0.02) == 0.02
    assert resolve(TARGET_KL, 50, target_kl=None, target_kl_schedule={"kind": "linear", "start": 0.02}) == 0.01


def test_a_schedule_without_a_start_needs_a_fixed_value() -> None:
    with pytest.raises(ValueError, match="target_kl_schedule: missing key 'start'"):
        resolve(TARGET_KL, 0, target_kl=None, target_kl_schedule="linear")


@pytest.mark.parametrize("values", [{}, {"clip_coef": None}, {"clip_coef": None, "clip_coef_warmup_steps": 10}])
def test_a_control_that_is_not_optional_needs_a_value(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^clip_coef or clip_range: missing"):
        resolve(CLIP_COEF, 0, **values)


def test_warming_up_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^target_kl: missing"):
        ControlSet.parse((TARGET_KL,), {"target_kl_warmup_steps": 10}, horizon=100)


def test_controls_resolve_together_and_by_moment() -> None:
    values = {"clip_coef": 0.2, "temperature": 1.0, "temperature_schedule": "linear", "num_epochs": 4}
    controls = ControlSet.parse((CLIP_COEF, TEMPERATURE, TARGET_KL), values, horizon=100)
    assert controls.resolve(25) == {"clip_coef": 0.2, "temperature": 0.75}
    assert controls.at(25, moment="acting") == {"temperature": 0.75}
    assert controls.at(25, moment="updating") == {"clip_coef": 0.2}


@pytest.mark.parametrize(("resolver", "name"), RESOLVERS)
def test_the_fixed_functions_read_values_schedules_and_defaults(resolver: Callable[..., float], name: str) -> None:
    assert resolver({}, step=7, default=0.3) == 0.3
    assert resolver({name: None}, step=7, default=0.3) == 0.3
    assert resolver({name: 0.1}, step=7, default=0.3) == 0.1
    scheduled = {f"{name}_schedule": "linear", "total_timesteps": 100}
    assert resolver(scheduled, step=50, default=0.3) == pytest.approx(0.15)
    assert resolver(scheduled | {name: 0.1}, step=50, default=0.3) == pytest.approx(0.05)
    assert resolver({f"{name}_warmup_steps": 10}, step=4, default=0.3) == pytest.approx(0.15)


@pytest.mark.parametrize(("resolver", "name"), RESOLVERS)
def test_the_fixed_functions_read_a_config_object(resolver: Callable[..., float], name: str) -> None:
    config = SimpleNamespace(algo_kwargs={f"{name}_schedule": {"type": "cosine", "start": 0.4}}, total_timesteps=200)
    assert resolver(config, step=100, default=0.3) == pytest.approx(0.2)


@pytest.mark.parametrize(("resolver", "name"), RESOLVERS)
@pytest.mark.parametrize("bad", [-0.5, math.nan, math.inf])
def test_the_fixed_functions_refuse_bad_values_by_name(resolver: Callable[..., float], name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        resolver({name: bad}, step=0, default=0.3)
    with pytest.raises(ValueError, match=f"^{name}_schedule"):
        resolver({f"{name}_schedule": {"kind": "constant", "value": bad}}, step=0, default=0.3)


@pytest.mark.parametrize("key", ["ent_coef", "entropy_coef"])
def test_both_spellings_of_the_entropy_coefficient_mean_the_same(key: str) -> None:
    for coefficient_key in ("ent_coef", "entropy_coef"):
        assert resolve_entropy_coefficient({key: 0.02}, step=0, default=9.0, coefficient_key=coefficient_key) == 0.02


def test_errors_use_the_spelling_of_the_coefficient_key() -> None:
    with pytest.raises(ValueError, match=r"^entropy_coef_schedule"):
        resolve_entropy_coefficient({"entropy_coef_schedule": "x"}, step=0, default=0.1, coefficient_key="entropy_coef")
    with pytest.raises(ValueError, match="'ent_coef' and 'entropy_coef' are two spellings"):
        resolve_entropy_coefficient({"ent_coef": 0.1, "entropy_coef": 0.1}, step=0, default=0.1)
    with pytest.raises(ValueError, match=re.escape("did you mean 'entropy_coef'?")):
        resolve_entropy_coefficient({}, step=0, default=0.1, coefficient_key="entropy_coeff")


def test_live_parameters_are_those_given_until_a_control_moves_them() -> None:
    given_params = PPOParams(clip_coef=0.3)
    live = LiveParams(given_params)
    assert {name: getattr(live, name) for name in PPOParams.model_fields} == given_params.model_dump()
    live.move({"clip_coef": 0.1})
    assert (live.clip_coef, live.vf_coef, given_params.clip_coef) == (0.1, 0.5, 0.3)


@pytest.mark.parametrize("name", ["clip_coef", "no_such_parameter"])
def test_live_parameters_refuse_assignment(name: str) -> None:
    live = LiveParams(PPOParams(clip_coef=0.3))
    with pytest.raises(AttributeError, match=f"{name} is a parameter: only controls move it"):
        setattr(live, name, 0.1)
    assert live.clip_coef == 0.3


@given(
    fixed=st.floats(0.0, 1e3),
    kind=st.sampled_from(["constant", "linear", "cosine", "polynomial"]),
    warmup=st.integers(0, 200),
    step=st.integers(0, 300),
)
@settings(max_examples=100, deadline=None)
def test_warmup_never_raises_a_value_and_ends(fixed: float, kind: str, warmup: int, step: int) -> None:
    keys: dict[str, Any] = {"clip_coef": fixed, "clip_coef_schedule": kind}
    plain = resolve(CLIP_COEF, step, **keys)
    warmed = resolve(CLIP_COEF, step, **keys, clip_coef_warmup_steps=warmup)
    assert 0.0 <= warmed <= plain <= fixed
    assert step + 1 < warmup or warmed == plain
