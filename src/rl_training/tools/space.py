"""Search spaces, written like a config: `learning_rate: {log: [1e-5, 1e-2]}`, `activation: {choice: [tanh, relu]}`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.config import layer_of, make_config, merge, read_yaml
from rl_training.experiment.presets import ASSETS
from rl_training.experiment.runs import is_number

KINDS = ("float", "int", "log", "choice")
SPACES = ASSETS / "spaces"


@dataclass(frozen=True)
class Dimension:
    """A key with the values that it may take: a range, or a choice."""

    key: str
    kind: str
    values: tuple[Any, ...]  # the bounds, or the choices
    step: float | None = None

    def suggest(self, trial: Any) -> Any:
        """A value from an Optuna trial; a choice is known there by its JSON, since it may be a mapping or a list."""
        if self.kind == "choice":
            return json.loads(trial.suggest_categorical(self.key, [json.dumps(value) for value in self.values]))
        whole = self.kind == "int" or all(isinstance(bound, int) for bound in self.values)
        if self.kind != "float" and whole:
            return trial.suggest_int(self.key, *self.values, step=self.step or 1, log=self.kind == "log")
        return trial.suggest_float(self.key, *self.values, step=self.step, log=self.kind == "log")


def parse_space(raw: Mapping[str, Any]) -> list[Dimension]:
    """The dimensions of a space, or a ConfigError that names the key and shows how it is written."""
    if not isinstance(raw, Mapping) or not raw:
        raise ConfigError("a search space is a mapping of keys, such as learning_rate: {log: [1e-5, 1e-2]}")
    return [_dimension(str(key), spec) for key, spec in raw.items()]


def _dimension(key: str, spec: Any) -> Dimension:
    if not isinstance(spec, Mapping):
        raise ConfigError(f"space: {key} must be a mapping such as {{log: [1e-5, 1e-2]}}, got {spec!r}")
    rest = {name: value for name, value in spec.items() if name != "step"}
    if len(rest) != 1 or next(iter(rest)) not in KINDS:
        wrong = next((name for name in rest if name not in KINDS), "")
        raise ConfigError(f"space: {key} takes one of {', '.join(KINDS)}, got {spec}; {did_you_mean(wrong, KINDS)}")
    ((kind, values),) = rest.items()
    if not isinstance(values, list) or (kind != "choice" and len(values) != 2) or not values:
        raise ConfigError(f"space: {key}: {kind} takes a list of {'values' if kind == 'choice' else 'two bounds'}")
    dimension = Dimension(key, kind, tuple(values), spec.get("step"))
    if kind != "choice":
        _check_bounds(dimension)
    return dimension


def _check_bounds(dimension: Dimension) -> None:
    key, (low, high), step = dimension.key, dimension.values, dimension.step
    if not is_number(low) or not is_number(high) or low >= high:
        raise ConfigError(f"space: {key}: the bounds must be two numbers, the lower one first, got {low} and {high}")
    if dimension.kind == "log" and (low <= 0 or step is not None):
        raise ConfigError(f"space: {key}: log needs bounds above 0 and takes no step")
    if dimension.kind == "int" and not all(isinstance(value, int) for value in (low, high, step or 1)):
        raise ConfigError(f"space: {key}: int needs whole numbers, got {low}, {high} and step {step}")
    if step is not None and (not is_number(step) or step <= 0):
        raise ConfigError(f"space: {key}: step must be a number above 0, got {step!r}")


def default_space(algo: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """The packaged space of an algorithm, without the keys that have no effect in this config."""
    path = SPACES / f"{algo}.yaml"
    if not path.is_file():
        raise ConfigError(f"there is no packaged search space for {algo}; write one and pass it with --space")
    space = read_yaml(path)
    idle = without_effect(base, space)
    return {key: spec for key, spec in space.items() if key not in idle}


def without_effect(base: Mapping[str, Any], space: Mapping[str, Any]) -> list[str]:
    """The keys whose values a schedule of the config overrides, because it says itself where it starts."""
    kwargs = base.get("algo_kwargs", {})
    own_start = {key for key in space if _has_own_start(kwargs.get(f"{key}_schedule"))}
    return [key for key in space if key in own_start and f"{key}_schedule" not in space]


def _has_own_start(schedule: Any) -> bool:
    return isinstance(schedule, Mapping) and not {"start", "points", "values"}.isdisjoint(schedule)


def check_space(base: Mapping[str, Any], space: Sequence[Dimension]) -> None:
    """Tries every bound and every choice alone, so that a wrong one is told before anything is trained."""
    if idle := without_effect(base, {dimension.key: None for dimension in space}):
        raise ConfigError(f"space: {idle[0]} has no effect, because {idle[0]}_schedule says where it starts; tune that")
    for dimension in space:
        for value in dimension.values:
            try:
                make_config(merge(base, layer_of([(dimension.key, value)])))
            except ConfigError as error:
                raise ConfigError(f"space: {dimension.key} = {value}: {error}") from error
