"""An algorithm's hyper-parameters: as they were given, and as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl_training.experiment.validation import Validated

IMAGE_LAYOUT = (
    "which axis of images has the channels; auto: the one that differs from the other two, or the shorter end"
)


class Params(Validated):
    """The base of every algorithm's parameters. A default is written here and nowhere else."""

    renamed: ClassVar[dict[str, str]] = {}  # keys that one may expect here, and what to give in their place

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A field that only has another default means what it meant."""
        for name, field in cls.model_fields.items():
            bases = (base for base in cls.__mro__[1:] if issubclass(base, Params) and name in base.model_fields)
            field.description = field.description or next((b.model_fields[name].description for b in bases), None)

    def idle(self) -> dict[str, str]:
        """Names of parameters that have no effect beside the others, and why; to give one is refused."""
        return {}


class LiveParams:
    """The parameters as they are now: those of a frozen `Params`, some of which controls have moved.

    The learner owns it. Its algorithm and its policy read it whenever they need a number and keep no copy, so that
    none of them can be stale.
    """

    def __init__(self, params: Params) -> None:
        vars(self).update(vars(params))

    def move(self, values: Mapping[str, float]) -> None:
        """Gives controls their values."""
        if unknown := values.keys() - vars(self).keys():
            raise AttributeError(f"no such parameter: {', '.join(sorted(unknown))}")
        vars(self).update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} is a parameter: only controls move it")
