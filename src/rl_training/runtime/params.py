"""`Params`: an algorithm's hyper-parameters with their defaults, and how a user's keys become them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from rl_training.errors import ConfigError
from rl_training.runtime.controls import SUFFIXES, Control, ControlSet, canonical_keys, control_keys


class Params(BaseModel):
    """A default is written here and nowhere else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def idle(self) -> dict[str, str]:
        """Names of parameters that have no effect beside the others, and why; to give one is refused."""
        return {}


class ParsedParams(NamedTuple):
    params: Any
    controls: ControlSet
    schedules: dict[str, Any]  # the `…_schedule` and `…_warmup_steps` keys, by canonical name


def parse_params(
    model: type[Params], controls: tuple[Control, ...], raw: Mapping[str, Any], *, horizon: int | None
) -> ParsedParams:
    """Validates a user's keys; a ConfigError has one line for each problem."""
    accepted = [*model.model_fields, *(key for control in controls for key in control_keys(control))]
    problems = [unknown_key("algo_kwargs", key, accepted) for key in raw if key not in accepted]
    known = {key: value for key, value in raw.items() if key in accepted}
    try:
        values = canonical_keys(known, controls)
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
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return ParsedParams(params, control_set, schedules)


def unknown_key(where: str, key: str, accepted: Iterable[str]) -> str:
    close = get_close_matches(key, list(accepted), n=1, cutoff=0.0)
    return f"unknown {where} key {key!r}; did you mean {close[0]!r}?"


def validation_problems(error: ValidationError, where: str, accepted: Iterable[str] = ()) -> list[str]:
    """One line for each of pydantic's complaints."""
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(unknown_key(where, key, accepted))
        elif problem["type"] == "value_error":
            lines.append(str(problem["ctx"]["error"]))
        else:
            lines.append(f"{key}: {problem['msg']}, got {problem['input']!r}")
    return lines
