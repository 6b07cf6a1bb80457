"""Observations and actions on the wire: JSON, or MessagePack, in which an array may be its bytes.

In MessagePack an array is a list, or a map with `dtype`, `shape` and `data`. Nothing in a message names code.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, import_extra

JSON, MSGPACK = "application/json", "application/msgpack"
ARRAY_KEYS = {"dtype", "shape", "data"}
NUMBERS = "biuf"  # the kinds of NumPy's dtypes that are numbers


def decode(body: bytes, content_type: str) -> dict[str, Any]:
    """The message of a body; a ConfigError says why it is none."""
    try:
        message = json.loads(body) if content_type == JSON else _msgpack().unpackb(body)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the body is not {content_type}: {error}") from error
    if not isinstance(message, dict):
        raise ConfigError(f"the body must be a mapping with 'obs', got {type(message).__name__}")
    return message


def encode(message: dict[str, Any], content_type: str) -> bytes:
    return json.dumps(message).encode() if content_type == JSON else _msgpack().packb(message)


def arrays_from(tree: Any) -> Any:
    """A tree of mappings with arrays of numbers as its leaves; a ValueError for anything else."""
    if isinstance(tree, dict):
        return _array_of_bytes(tree) if tree.keys() == ARRAY_KEYS else {k: arrays_from(v) for k, v in tree.items()}
    array = np.array(tree)
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"{json.dumps(tree, default=str)[:80]} has something else in it")
    return array


def _array_of_bytes(spec: dict[str, Any]) -> NDArray[Any]:
    shape, data = spec["shape"], spec["data"]
    try:
        dtype = np.dtype(str(spec["dtype"]))
    except TypeError as error:
        raise ValueError(f"{spec['dtype']!r:.40} is no dtype") from error
    if dtype.kind not in NUMBERS or not isinstance(data, bytes):
        raise ValueError("an array of bytes needs a dtype of numbers and binary data")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{shape!r:.40} is no shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes are no array of shape {shape} and dtype {dtype}")
    return np.frombuffer(data, dtype).reshape(shape)


def _msgpack() -> Any:
    return import_extra("msgpack", extra="serve")
