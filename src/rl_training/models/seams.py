"""A user's own networks, given as a class, a callable, a module or `module:Class`: made and checked here."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer
from torch import nn

from rl_training.blame import told
from rl_training.errors import ConfigError
from rl_training.naming import PYTHON_PREFIX, ask_again, import_named, named_tree, names_code, python_name


def _own_network(value: Any) -> Any:
    """A parameter holds nothing, a name, something to call, or one of these for each key of a Dict."""
    if isinstance(value, Mapping):
        return {key: _own_network(part) for key, part in value.items()}
    if value is None or isinstance(value, str) or callable(value):
        return value
    raise ValueError(f"expected a name, module:Class, a class or a callable, got {value!r}")


# A parameter that holds a network; a config writes an object as `python:<name>`.
OwnNetwork = Annotated[Any, BeforeValidator(_own_network), PlainSerializer(named_tree, when_used="json")]


def is_own(value: Any) -> bool:
    """Whether a network is the user's own: not one that the package has by name."""
    return value is not None and (not isinstance(value, str) or ":" in value)


def make_own(seam: str, value: Any, *args: Any, **kwargs: Any) -> nn.Module:
    """The module that a user's class or callable makes; a module that was made before is copied."""
    if isinstance(value, nn.Module):
        if kwargs:
            raise ConfigError(f"{seam} was made before it could be given {', '.join(kwargs)}; pass its class")
        return copy.deepcopy(value)
    make, name = _maker(seam, value), own_name(value)
    try:
        module = make(*args, **kwargs)
    except Exception as error:
        raise ConfigError(f"{seam}: {name} raised {told(error)}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{seam}: {name} made {type(module).__name__}, which is not a torch.nn.Module")
    return module


def own_name(value: Any) -> str:
    return value if isinstance(value, str) else python_name(value).removeprefix(PYTHON_PREFIX)


def refuse_missing(seam: str, value: Any, module: nn.Module, wanted: Iterable[str]) -> None:
    if missing := [name for name in wanted if getattr(module, name, None) is None]:
        raise ConfigError(f"{seam}: {own_name(value)} has no {', '.join(missing)}")


def _maker(seam: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith(PYTHON_PREFIX):
        raise ask_again(seam, value, f"{seam}=")
    if names_code(value):
        return import_named(value, f"the {seam}")
    raise ConfigError(f"{seam}: {value!r} is neither a name of the package nor module:Class")
