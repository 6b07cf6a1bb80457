"""The keys that a managed class takes, of the config and of its algorithm, with types, defaults and descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmRow

NOT_KEYWORDS = {"algo", "algo_kwargs", "env_id"}  # the class, the algorithm's own keys, the first argument
SCHEDULE = "float | str | Mapping[str, Any] | Callable[[float], float]"


class Parameter(NamedTuple):
    name: str
    type: str
    default: Any
    description: str
    schedulable: bool = False
    bounds: str = ""


def config_parameters() -> list[Parameter]:
    """The keys that every algorithm takes."""
    fields = TrainConfig.model_fields.items()
    return [_parameter(name, field) for name, field in fields if name not in NOT_KEYWORDS]


def algorithm_parameters(row: AlgorithmRow) -> list[Parameter]:
    """The keys of the algorithm's own parameters."""
    learner = row.learner_class()
    scheduled = {control.name for control in learner.controls}
    fields = learner.Params.model_fields.items()
    return [_parameter(name, field)._replace(schedulable=name in scheduled) for name, field in fields]


def described(row: AlgorithmRow) -> str:
    """The documentation of the managed class."""
    lines = [f"{row.title} ({row.paper}, {row.year}).", "", "Parameters:"]
    for parameter in algorithm_parameters(row):
        schedule = "; may follow a schedule" if parameter.schedulable else ""
        default = f"default {parameter.default!r}{schedule}"
        lines.append(f"    {parameter.name} ({parameter.type}): {parameter.description} [{default}]")
    lines += ["", "Keys of every run:"]
    lines += [f"    {p.name} ({p.type}): {p.description} [default {p.default!r}]" for p in config_parameters()]
    return "\n".join(lines)


def _parameter(name: str, field: FieldInfo) -> Parameter:
    default, description = field.get_default(), field.description or ""
    return Parameter(name, type_text(field.annotation), default, description, bounds=bounds_text(field))


def bounds_text(field: FieldInfo) -> str:
    """`> 0, <= 1`, of a number that has bounds, also where None may stand in its place."""
    marks = [
        *field.metadata,
        *(mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())),
    ]
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [f"{sign} {getattr(mark, name):g}" for mark in marks for name, sign in signs.items() if hasattr(mark, name)]
    return ", ".join(dict.fromkeys(found))


def type_text(annotation: Any) -> str:
    """An annotation as a stub writes it, without pydantic's bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "None"
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is Union or type(annotation).__name__ == "UnionType":
        return " | ".join(dict.fromkeys(map(type_text, arguments)))
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if a is Ellipsis else type_text(a) for a in arguments)}]"
    return "Any" if annotation is Any else str(annotation.__name__)
