"""How a user's keys become an algorithm's `Params` and the controls that move some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from rl_training.algorithms.params import Params
from rl_training.errors import ConfigError
from rl_training.experiment.validation import unknown_key, validation_problems
from rl_training.runtime.controls import SUFFIXES, Control, ControlSet, canonical_keys, control_keys
from rl_training.runtime.schedules import rename_aliases


class ParsedParams(NamedTuple):
    params: Any
    controls: ControlSet
    schedules: dict[str, Any]  # the `…_schedule` and `…_warmup_steps` keys, by canonical name


def parse_params(
    model: type[Params], controls: tuple[Control, ...], raw: Mapping[str, Any], *, horizon: int | None
) -> ParsedParams:
    """Validates a user's keys; a ConfigError has one line for each problem."""
    accepted = [*model.model_fields, *model.spellings, *(key for control in controls for key in control_keys(control))]
    problems = [_refusal(model, key, accepted) for key in raw if key not in accepted]
    known = {key: value for key, value in raw.items() if key in accepted}
    try:
        values = canonical_params(model, controls, known)
    except ValueError as error:
        raise ConfigError("\n".join([*problems, str(error)])) from error
    schedules = {key: value for key, value in values.items() if key not in model.model_fields}
    try:
        params = model.model_validate({key: value for key, value in values.items() if key in model.model_fields})
    except ValidationError as error:
        raise ConfigError("\n".join(problems + validation_problems(error, "algo_kwargs"))) from error
    idle = params.idle()
    given = {name: key for name in idle for key in values if key.removeprefix(name) in SUFFIXES}
    problems += [f"{key} has no effect {idle[name]}" for name, key in given.items()]
    try:
        active = (control for control in controls if control.name not in idle)
        control_set = ControlSet.parse(active, params.model_dump() | schedules, horizon=horizon)
        problems += _schedules_always_too_low(params, control_set, schedules)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return ParsedParams(params, control_set, schedules)


def canonical_params(model: type[Params], controls: Iterable[Control], raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with every other spelling under its canonical key; two spellings of one key are refused."""
    return canonical_keys(rename_aliases(raw, model.spellings), controls)


def _schedules_always_too_low(params: Params, controls: ControlSet, schedules: Mapping[str, Any]) -> list[str]:
    """A schedule may end where no fixed value may be, at a learning rate of 0; but it must not always be there."""
    given = params.model_dump(exclude_unset=True)
    problems = []
    for name, peak in controls.peaks().items():
        if f"{name}_schedule" not in schedules:
            continue
        try:
            type(params).model_validate(given | {name: peak})
        except ValidationError as error:
            lines = validation_problems(error, "algo_kwargs")
            problems += [f"{name}_schedule: its highest value could not be a fixed one; {line}" for line in lines]
    return problems


def _refusal(model: type[Params], key: str, accepted: list[str]) -> str:
    """Why a key is not accepted, and what to give in its place."""
    for name, cure in model.renamed.items():
        if key.removeprefix(name) in SUFFIXES:
            return f"{key}: {cure}"
    return unknown_key("algo_kwargs", key, accepted)


def refuse_idle(params: Params, idle: Mapping[str, str]) -> None:
    """Parameters without effect are refused unless they have their defaults, as in a config that spells out all."""
    defaults = {name: field.default for name, field in type(params).model_fields.items()}
    changed = [name for name in idle if name in defaults and getattr(params, name) != defaults[name]]
    if changed:
        raise ConfigError("\n".join(f"{name} has no effect {idle[name]}; leave it out" for name in changed))
