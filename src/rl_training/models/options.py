"""Options of networks, taken from the parameters of an algorithm by their names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

OptionsT = TypeVar("OptionsT")


def options_from(kind: type[OptionsT], params: Any, **given: Any) -> OptionsT:
    """A dataclass of options whose fields are the parameters of the same names, but for those that are given."""
    names = (field.name for field in fields(kind) if field.name not in given)  # type: ignore[arg-type]
    return kind(**{name: getattr(params, name) for name in names}, **given)
