"""Controls: scalars that may move during training, each declared once.

From a `Control` follow the accepted keys, the schedule, the warm-up, the bounds, the moment at which the value is
applied and its name in the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch

from rl_training.errors import did_you_mean
from rl_training.runtime.kl_adaptive import KLAdaptive
from rl_training.runtime.schedules import (
    Constant,
    Schedule,
    finite_number,
    parse_schedule,
    rename_aliases,
)

Moment = Literal["acting", "updating"]

NOTHING: Mapping[str, float] = {}
SUFFIXES = ("", "_schedule", "_warmup_steps")  # of a control's keys


@dataclass(frozen=True)
class Control:
    """The declaration of one scalar; `low` and `high` are inclusive bounds on its resolved value."""

    name: str
    aliases: tuple[str, ...] = ()
    low: float = 0.0
    high: float = math.inf
    moment: Moment = "updating"
    integer: bool = False
    optional: bool = False
    needs_end: bool = False  # an annealing schedule must say where it ends, since 0 would be senseless
    kl_metric: str | None = None  # of updates, the KL that this control causes; a schedule may follow it

    def spelled(self, name: str) -> Control:
        """Returns the control with one of its aliases as its name, in the metrics and in the errors."""
        names = (self.name, *self.aliases)
        if name not in names:
            raise ValueError(f"{name!r} is no spelling of {self.name!r}; {did_you_mean(name, names)}")
        return replace(self, name=name, aliases=tuple(other for other in names if other != name))


LEARNING_RATE = Control("learning_rate")
KL_LEARNING_RATE = replace(LEARNING_RATE, kl_metric="approx_kl")
CLIP_COEF = Control("clip_coef", aliases=("clip_range",))
ENT_COEF = Control("ent_coef", aliases=("entropy_coef",))
VF_COEF = Control("vf_coef", aliases=("value_coef",))
GAMMA = Control("gamma", high=1.0, needs_end=True)
GAE_LAMBDA = Control("gae_lambda", high=1.0, needs_end=True)
TARGET_KL = Control("target_kl", optional=True)
MAX_GRAD_NORM = Control("max_grad_norm", needs_end=True)
CG_DAMPING = Control("cg_damping")
RHO_BAR = Control("rho_bar", needs_end=True)
C_BAR = Control("c_bar", needs_end=True)
PG_RHO_BAR = Control("pg_rho_bar", needs_end=True)
KL_COEF = Control("kl_coef")
BETA_CLONE = Control("beta_clone")
AUX_LEARNING_RATE = Control("aux_learning_rate")
RND_COEF = Control("rnd_coef")
RND_LEARNING_RATE = Control("rnd_learning_rate")
TEMPERATURE = Control("temperature", moment="acting")
NUM_SIMULATIONS = Control("num_simulations", low=1.0, moment="acting", integer=True)
ROOT_EXPLORATION_FRACTION = Control("root_exploration_fraction", high=1.0, moment="acting")
REPLAY_RATIO = Control("replay_ratio")
EPSILON = Control("epsilon", aliases=("exploration_rate",), high=1.0, moment="acting")
TAU = Control("tau", high=1.0, needs_end=True)
PRIORITY_BETA = Control("priority_beta", high=1.0)
HER_RATIO = Control("her_ratio", high=1.0)
SAC_ENT_COEF = replace(ENT_COEF, optional=True)  # where nothing is given, it is learned
TARGET_ENTROPY = Control("target_entropy", low=-math.inf, optional=True, needs_end=True)
EXPLORATION_NOISE = Control("exploration_noise", moment="acting")
TARGET_NOISE = Control("target_noise")
REANALYSE_FRACTION = Control("reanalyse_fraction", aliases=("reanalyze_fraction",), high=1.0)


def control_keys(control: Control) -> tuple[str, ...]:
    """Every config key that sets `control`, the canonical ones first."""
    return tuple(name + suffix for name in (control.name, *control.aliases) for suffix in SUFFIXES)


def canonical_keys(raw: Mapping[str, Any], controls: Iterable[Control]) -> dict[str, Any]:
    """`raw` with every alias of a control under its canonical key; two spellings of one key are refused."""
    spellings = {
        alias + suffix: control.name + suffix
        for control in controls
        for alias in control.aliases
        for suffix in SUFFIXES
    }
    return rename_aliases(raw, spellings)


@dataclass(frozen=True)
class ResolvedControl:
    """A control with the schedule and the warm-up that a config gave it."""

    control: Control
    schedule: Schedule
    warmup_steps: int
    key: str

    def resolve(self, step: int, adapted: float | None = None) -> float:
        """The value to apply and to log at `step`; `adapted` is what a schedule that follows a KL has come to."""
        value = self.scheduled(step)
        if isinstance(self.schedule, KLAdaptive) and adapted is not None:
            value = self.schedule.within(adapted)
        if self.warmup_steps:
            # From the lowest admissible value, since a share of one simulation is none.
            value = max(self.control.low, value * min((step + 1) / self.warmup_steps, 1.0))
        return round(value) if self.control.integer else value

    def peak(self) -> float:
        """The highest value before warm-up."""
        highest = max(map(self.schedule, self.schedule.breakpoints))
        return round(highest) if self.control.integer else highest

    def scheduled(self, step: float) -> float:
        """The value before warm-up, refused if it is outside the control's bounds."""
        value, low, high = self.schedule(step), self.control.low, self.control.high
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"{self.key}: {value} at step {step:.12g} is not {_describe_bounds(low, high)}")
        return value


@dataclass(frozen=True)
class ControlSet:
    """The controls of one run; optional ones that are off are absent."""

    controls: tuple[ResolvedControl, ...]

    @classmethod
    def parse(cls, controls: Iterable[Control], values: Mapping[str, Any], *, horizon: int | None) -> ControlSet:
        """Read each control from canonical keys, ignoring other keys; refuse a bad schedule before the run starts."""
        parsed = (_parse_control(control, values, horizon) for control in controls)
        return cls(tuple(control for control in parsed if control is not None))

    def resolve(self, step: int, adapted: Mapping[str, float] = NOTHING) -> dict[str, float]:
        """The value of every control at `step`, by canonical name."""
        return {r.control.name: r.resolve(step, adapted.get(r.control.name)) for r in self.controls}

    def adapt(self, adapted: Mapping[str, float], updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Returns the new values of schedules that follow a KL, given the metrics of the updates on a rollout."""
        after = {}
        for resolved in self.controls:
            name, metric, schedule = resolved.control.name, resolved.control.kl_metric, resolved.schedule
            if metric is not None and isinstance(schedule, KLAdaptive):
                value = adapted.get(name, schedule.start)
                measured = [torch.as_tensor(metrics[metric]) for metrics in updates if metric in metrics]
                after[name] = schedule.next_value(value, float(torch.stack(measured).mean())) if measured else value
        return after

    def moving(self) -> tuple[str, ...]:
        """The names of those that change during the run."""
        return tuple(r.control.name for r in self.controls if r.warmup_steps or not isinstance(r.schedule, Constant))

    def peaks(self) -> dict[str, float]:
        """The highest value of every schedule, by its control's name."""
        return {r.control.name: r.peak() for r in self.controls}

    def at(self, step: int, *, moment: Moment) -> dict[str, float]:
        """The values of the controls that are applied before acting, or before updating."""
        return {r.control.name: r.resolve(step) for r in self.controls if r.control.moment == moment}


class HasAlgoKwargs(Protocol):
    """The part of `TrainConfig` that the functions below read."""

    @property
    def algo_kwargs(self) -> Mapping[str, Any]: ...

    @property
    def total_timesteps(self) -> int: ...


def resolve_clip_coefficient(config: Mapping[str, Any] | HasAlgoKwargs, *, step: int, default: float) -> float:
    """PPO's clip range at `step`."""
    return _resolve_one(CLIP_COEF, config, step=step, default=default)


def resolve_entropy_coefficient(
    config: Mapping[str, Any] | HasAlgoKwargs, *, step: int, default: float, coefficient_key: str = "ent_coef"
) -> float:
    """The weight of the entropy bonus at `step`; `coefficient_key` is the spelling that errors use."""
    return _resolve_one(ENT_COEF.spelled(coefficient_key), config, step=step, default=default)


def resolve_temperature(config: Mapping[str, Any] | HasAlgoKwargs, *, step: int, default: float) -> float:
    """The temperature of action selection at `step`."""
    return _resolve_one(TEMPERATURE, config, step=step, default=default)


def _resolve_one(control: Control, config: Mapping[str, Any] | HasAlgoKwargs, *, step: int, default: float) -> float:
    if isinstance(config, Mapping):
        algo_kwargs, horizon = config, config.get("total_timesteps")
    else:
        algo_kwargs, horizon = config.algo_kwargs, config.total_timesteps
    values = canonical_keys(algo_kwargs, (control,))
    if values.get(control.name) is None:
        values[control.name] = default
    return ControlSet.parse((control,), values, horizon=horizon).resolve(step)[control.name]


def _parse_control(control: Control, values: Mapping[str, Any], horizon: int | None) -> ResolvedControl | None:
    fixed, spec, warmup = (values.get(control.name + suffix) for suffix in SUFFIXES)
    value_key, schedule_key, warmup_key = (_as_written(control, suffix) for suffix in SUFFIXES)
    warmup_steps = _parse_warmup(warmup, warmup_key)
    if fixed is not None:
        fixed = finite_number(fixed, value_key)
    if spec is not None:
        schedule = parse_schedule(spec, key=schedule_key, base=fixed, horizon=horizon, needs_end=control.needs_end)
        _refuse_unmeasured(control, schedule, schedule_key)
        resolved = ResolvedControl(control, schedule, warmup_steps, schedule_key)
    elif fixed is not None:
        resolved = ResolvedControl(control, Constant(fixed), warmup_steps, value_key)
    elif control.optional and not warmup_steps:
        return None
    else:
        raise ValueError(f"{value_key}: missing; give it a number or a schedule")
    for step in resolved.schedule.breakpoints:
        resolved.scheduled(step)
    return resolved


def _refuse_unmeasured(control: Control, schedule: Schedule, key: str) -> None:
    """A KL-adaptive schedule needs an algorithm whose updates measure how far the control lets the policy move."""
    if isinstance(schedule, KLAdaptive) and control.kl_metric is None:
        raise ValueError(
            f"{key}: kind 'kl_adaptive' follows the KL that updates measure, and here none does for {control.name}; "
            "it is for the learning_rate of ppo, recurrent_ppo, ppg, gail and appo. Choose another kind"
        )


def _parse_warmup(warmup: Any, key: str) -> int:
    if warmup is None:
        return 0
    number = finite_number(warmup, key)
    if number < 0 or not number.is_integer():
        raise ValueError(f"{key}: expected a whole number of steps, 0 or more, got {warmup!r}")
    return int(number)


def _as_written(control: Control, suffix: str) -> str:
    """The key for an error message; with its aliases, since the user may have written one of those."""
    aliases = "".join(f" or {alias}{suffix}" for alias in control.aliases)
    return f"{control.name}{suffix}{aliases}"


def _describe_bounds(low: float, high: float) -> str:
    return f"a finite number of at least {low:g}" + ("" if math.isinf(high) else f" and at most {high:g}")
