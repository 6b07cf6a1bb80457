"""A state tree split into JSON and tensors, and put together again, to the bit.

A value that JSON cannot say exactly is written as `{"$": [kind, …]}`; a tensor is named by its JSON pointer.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.errors import CheckpointError

MARK = "$"
MAX_JSON_INT_BITS = 63
JSON_TYPES = (bool, int, float, str, type(None))
SCALAR_DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefdFD")


class StateEncoder:
    """Splits a tree into what JSON can hold and the tensors, named by their JSON pointers (RFC 6901)."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._storages: set[int] = set()

    def encode(self, node: Any, path: str) -> Any:
        if isinstance(node, Mapping):
            items = {key: self.encode(child, _child_path(path, key)) for key, child in node.items()}
            return {MARK: ["dict", items]} if set(items) == {MARK} else items
        if isinstance(node, list | tuple):
            return [self.encode(child, f"{path}/{index}") for index, child in enumerate(node)]
        if isinstance(node, Tensor):
            self._add(path, node)
            return {MARK: ["tensor"]}
        if isinstance(node, np.ndarray):
            self._add(path, _as_tensor(node, path))
            return {MARK: ["array"]}
        return _encode_scalar(node, path)

    def _add(self, path: str, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.dtype is torch.complex128:
            raise CheckpointError(f"cannot save {path}: a tensor of {tensor.dtype} and {tensor.layout}; make it dense")
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        # safetensors refuses tensors that share memory.
        if dense.untyped_storage().data_ptr() in self._storages:
            dense = dense.clone()
        self._storages.add(dense.untyped_storage().data_ptr())
        self.tensors[path] = dense


class StateDecoder:
    """Puts a tree together again; every tensor must be used, and none may be missing."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.unused = dict(tensors)

    def decode(self, node: Any, path: str) -> Any:
        if isinstance(node, list):
            return [self.decode(child, f"{path}/{index}") for index, child in enumerate(node)]
        if not isinstance(node, dict):
            return node
        if set(node) != {MARK}:
            return self._decode_items(node, path)
        match node[MARK]:
            case ["tensor"]:
                return self.unused.pop(path)
            case ["array"]:
                return self.unused.pop(path).numpy()
            case ["dict", dict(items)]:
                return self._decode_items(items, path)
            case marked:
                return _decode_scalar(marked, path)

    def _decode_items(self, items: dict[str, Any], path: str) -> dict[str, Any]:
        return {key: self.decode(child, _child_path(path, key)) for key, child in items.items()}


def _child_path(path: str, key: object) -> str:
    if not isinstance(key, str):
        raise CheckpointError(f"cannot save {path or '/'}: its key {key!r} is not a str; convert the keys")
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def _as_tensor(array: np.ndarray, path: str) -> Tensor:
    try:
        return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "A", "W"]))
    except TypeError as error:
        raise CheckpointError(f"cannot save {path}: an array of {array.dtype}; only numbers and bool can be") from error


def _encode_scalar(value: Any, path: str) -> Any:
    if isinstance(value, np.generic) and value.dtype.name in SCALAR_DTYPES:
        little_endian = np.asarray(value).astype(value.dtype.newbyteorder("<"))
        return {MARK: ["scalar", value.dtype.name, little_endian.tobytes().hex()]}
    # Exact types only: an Enum or another subclass would come back as something else.
    if type(value) not in JSON_TYPES:
        raise CheckpointError(f"cannot save {path}: {type(value).__name__} is not a type that a checkpoint can hold")
    if type(value) is int and value.bit_length() > MAX_JSON_INT_BITS:
        return {MARK: ["int", hex(value)]}
    if type(value) is float and not math.isfinite(value):
        return {MARK: ["float", struct.pack(">d", value).hex()]}
    return value


def _decode_scalar(marked: Any, path: str) -> Any:
    match marked:
        case ["scalar", str(name), str(data)] if name in SCALAR_DTYPES:
            (value,) = np.frombuffer(bytes.fromhex(data), np.dtype(name).newbyteorder("<"))
            return np.dtype(name).type(value)
        case ["int", str(digits)]:
            return int(digits, 16)
        case ["float", str(bits)]:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
    raise ValueError(f"unknown kind of value at {path}")
