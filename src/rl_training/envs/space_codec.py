"""Spaces as data, so that a checkpoint tells what its policy takes and gives without an environment.

A description holds numbers, text, lists and arrays only; reading one executes nothing that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.envs.multitask import TaskObservations
from rl_training.envs.types import Spaces
from rl_training.errors import CheckpointError, ConfigError

DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefd")


def describe_spaces(pair: Spaces) -> dict[str, Any]:
    return {"observation": _describe(pair.observation), "action": _describe(pair.action)}


def spaces_from(description: Any) -> Spaces:
    """The spaces that `describe_spaces` described; anything else is a CheckpointError."""
    try:
        return Spaces(_space(description["observation"]), _space(description["action"]))
    except (KeyError, TypeError, ValueError, AssertionError, IndexError, OverflowError) as error:
        raise CheckpointError(f"the spaces in the checkpoint are not what this package writes: {error!r}") from error


def same_form(one: Spaces, other: Spaces) -> bool:
    """Whether a network for the one takes the other; bounds may differ."""
    return all(_form(a) == _form(b) for a, b in zip(one, other, strict=True))


def _form(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _form(child) for key, child in space.items()}
    if isinstance(space, spaces.Box):
        return space.shape, space.dtype
    if isinstance(space, spaces.MultiBinary):
        return space.shape, "bits"  # Gymnasium tells MultiBinary(3) and MultiBinary((3,)) apart
    return space


def _describe(space: spaces.Space) -> dict[str, Any]:
    if isinstance(space, TaskObservations):
        tasks = [describe_spaces(task) for task in space.of_tasks]
        return {"kind": "tasks", "names": list(space.names), "tasks": tasks}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": {key: _describe(child) for key, child in space.items()}}
    if isinstance(space, spaces.Box):
        bounds = {"low": _shortest(space.low), "high": _shortest(space.high)}
        return {"kind": "box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", "nvec": space.nvec, "start": space.start, "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    raise ConfigError(f"a checkpoint cannot hold the space {space}; Box, Discrete, Multi… and Dict are known")


def _shortest(bound: np.ndarray) -> Any:
    """One number where all are equal, which images have a hundred thousand of."""
    return bound.flat[0] if bound.size and (bound == bound.flat[0]).all() else bound


def _space(description: Mapping[str, Any]) -> spaces.Space:
    kind = description["kind"]
    if kind not in _READERS:
        raise ValueError(f"unknown kind of space {kind!r}")
    return _READERS[kind](description)


def _tasks(description: Mapping[str, Any]) -> spaces.Space:
    return TaskObservations(description["names"], [spaces_from(task) for task in description["tasks"]])


def _box(description: Mapping[str, Any]) -> spaces.Space:
    dtype = _dtype(description)
    shape = tuple(map(int, description["shape"]))
    low, high = (np.broadcast_to(np.asarray(description[name], dtype), shape) for name in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)


def _discrete(description: Mapping[str, Any]) -> spaces.Space:
    if description["dtype"] == "int64":  # older releases of Gymnasium know no other
        return spaces.Discrete(description["n"], start=description["start"])
    return spaces.Discrete(description["n"], start=description["start"], dtype=_dtype(description).type)


def _dtype(description: Mapping[str, Any]) -> np.dtype[Any]:
    if description["dtype"] not in DTYPES:
        raise ValueError(f"unknown dtype {description['dtype']!r}")
    return np.dtype(description["dtype"])


_READERS: dict[str, Callable[[Mapping[str, Any]], spaces.Space]] = {
    "tasks": _tasks,
    "dict": lambda read: spaces.Dict({key: _space(child) for key, child in read["spaces"].items()}),
    "box": _box,
    "discrete": _discrete,
    "multi_discrete": lambda read: spaces.MultiDiscrete(read["nvec"], _dtype(read).type, start=read["start"]),
    "multi_binary": lambda read: spaces.MultiBinary(read["shape"]),
}
