"""Pydantic's complaints as lines that name the key and the cure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from rl_training.errors import did_you_mean

LARGEST_NUMBER = 3.4e38  # networks compute in 32 bits


class Validated(BaseModel):
    """A frozen model that takes no unknown keys, no truth values for numbers, and no number that torch cannot hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        items = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(item, float) and abs(item) > LARGEST_NUMBER for item in items):
            raise ValueError(f"{info.field_name}: expected a number below {LARGEST_NUMBER:.3g}, got {value!r}")
        if any(isinstance(item, bool) for item in items):
            annotation = cls.model_fields[str(info.field_name)].annotation
            if value is False and "off" in get_args(annotation):
                return "off"  # YAML reads a bare off as a truth value
            if not {bool, Any} & _types_in(annotation):
                raise ValueError(f"{info.field_name}: expected no truth value, got {value!r}")
        return value


def _types_in(annotation: Any) -> set[Any]:
    """All types that an annotation is made of."""
    return {annotation}.union(*(_types_in(part) for part in get_args(annotation) if not isinstance(part, str)))


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
