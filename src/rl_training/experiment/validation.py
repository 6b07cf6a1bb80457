"""Pydantic's complaints as lines that name the key and the cure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from rl_training.errors import did_you_mean


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
