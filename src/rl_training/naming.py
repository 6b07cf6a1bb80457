"""Names of code: `module:name` and `file.py:name` are imported, `python:name` was an object that a config cannot hold.

Whoever imports by a name from a run that was received asks `experiment.trust` before.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from rl_training.blame import told
from rl_training.errors import ConfigError, RLTrainingError

PYTHON_PREFIX = "python:"

_searched: list[Path] = []  # folders that become importable with the first name that is imported


def python_name(value: Any) -> str:
    """How a config names an object that was passed in Python: by its own name, or by that of its class."""
    while isinstance(value, partial):
        value = value.func
    return PYTHON_PREFIX + (getattr(value, "__name__", None) or type(value).__name__)


def ask_again(what: str, text: str, how: str) -> ConfigError:
    """The error for an object that a config names and that has not been passed again."""
    name = text.removeprefix(PYTHON_PREFIX)
    return ConfigError(f"{what} was the Python object {name!r}, which no file can hold: pass it again as {how}")


def names_code(text: Any) -> bool:
    """Whether a text is `module:name` or `file.py:name`; an id such as `module:Id-v0` has a version and is none."""
    where, _, name = str(text).rpartition(":")
    return isinstance(text, str) and bool(where) and name.isidentifier() and not text.startswith(PYTHON_PREFIX)


def import_named(text: str, what: str, error_class: type[RLTrainingError] = ConfigError) -> Any:
    """Imports `module:name` or `file.py:name`; an error says `what` it was to be."""
    where, _, name = text.rpartition(":")
    search_folders()
    try:
        module = _module_of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        return getattr(module, name)
    except (Exception, SystemExit) as error:  # a module is user code, and may raise anything
        raise error_class(f"cannot import {what} {text!r}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError | AttributeError | FileNotFoundError):
        return str(error)
    return told(error)


def _module_of_file(path: Path) -> ModuleType:
    """Runs a file once, however often it is named; what lies beside it can be imported, as with `python file.py`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} in {Path.cwd()}")
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be read as a module")
    module = importlib.util.module_from_spec(spec)
    _make_importable(path.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def also_import_from(folder: Path) -> None:
    """Makes a folder importable as soon as a name is imported, and not before.

    Until then nothing that lies there, in a run that was received for instance, can take the place of a library.
    """
    _searched.append(folder)


def search_folders() -> None:
    """Makes the folders importable; to be called before something imports a module that the user named."""
    while _searched:
        _make_importable(_searched.pop())


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def named_tree(tree: Any) -> Any:
    """A tree of plain values, with `python:<name>` in place of every object that a file cannot hold."""
    if isinstance(tree, Mapping):
        return {key: named_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [named_tree(value) for value in tree]
    return tree if tree is None or isinstance(tree, bool | int | float | str) else python_name(tree)
