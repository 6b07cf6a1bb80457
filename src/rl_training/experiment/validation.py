"""Pydantic's complaints as lines that name the key and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rl_training.errors import did_you_mean


def refuse_bools_for_numbers(model: type[BaseModel], raw: Mapping[str, Any]) -> None:
    """Refuses `true` and `false` where a number must stand: pydantic would read 1 and 0."""
    suspects = {name: set(_leaf_types(model.model_fields[name].annotation)) for name in raw.keys() & model.model_fields}
    numbers = [name for name, kinds in suspects.items() if kinds & {int, float} and not kinds & {bool, Any}]
    lines = [f"{name}: {raw[name]!r} is not a number" for name in sorted(numbers) if _has_bool(raw[name])]
    if lines:
        raise ValueError("\n".join(lines))


def _has_bool(value: Any) -> bool:
    return any(map(_has_bool, value)) if isinstance(value, (list, tuple)) else isinstance(value, bool)


def _leaf_types(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    for part in parts:
        yield from _leaf_types(part)
    if not parts:
        yield annotation


def unknown_key(where: str, key: str, accepted: Iterable[str]) -> str:
    return f"unknown {where} key {key!r}; {did_you_mean(key, accepted)}"


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
