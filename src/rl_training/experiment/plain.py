"""Configs are made of plain values, read from YAML or given in Python, neither huge nor deep."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rl_training.errors import ConfigError

MAX_YAML_BYTES = 262_144
MAX_DEPTH = 32
MAX_INTEGER = 2**63


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, which make a short text a huge tree, and deep nesting; no config needs either."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not accepted", event.start_mark)
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, f"nested more than {MAX_DEPTH} deep", mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; errors begin with `where`."""
    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(f"{where}: longer than {MAX_YAML_BYTES:,} characters, which no config is")
    try:
        loader = _PlainLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # a date may be none, for instance
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def read_yaml_file(path: Path) -> Any:
    """The value of a YAML file, which must be a plain file of moderate size."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"cannot read config {path}: it is not a file")
        if status.st_size > MAX_YAML_BYTES:
            raise ConfigError(f"cannot read config {path}: larger than {MAX_YAML_BYTES:,} bytes, which no config is")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read config {path}: {error}") from error
    return parse_yaml(text, str(path))


def plain(tree: Any, key: str = "", depth: int = 0) -> Any:
    """The same with Python's own types in place of NumPy's and of paths; other objects stay as they are."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"{key.partition('.')[0]}: nested more than {MAX_DEPTH} deep")
    if isinstance(tree, Mapping):
        for name in tree:
            if not isinstance(name, str):
                raise ConfigError(f"{key or 'config'}: the key {name!r} is not text")
        return {name: plain(value, f"{key}.{name}" if key else name, depth + 1) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value, key, depth + 1) for value in tree]
    if isinstance(tree, np.ndarray | np.generic):
        return plain(tree.tolist(), key, depth) if tree.dtype.kind in "biufU" else tree
    if isinstance(tree, str):
        _refuse_odd_text(tree, key)
    if isinstance(tree, int) and abs(tree) >= MAX_INTEGER:
        raise ConfigError(f"{key}: an integer of {tree.bit_length()} bits is too large")
    return os.fspath(tree) if isinstance(tree, Path) else tree


def _refuse_odd_text(text: str, key: str) -> None:
    """Neither files nor their names can hold a NUL, or half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{key}: {text!r} is not text that can be written") from error
    if "\0" in text:
        raise ConfigError(f"{key}: {text!r} has a NUL character")
