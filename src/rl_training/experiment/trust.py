"""Which code a run or a model that was received may cause to be imported.

A file that names `module:factory` or `file.py:factory` would execute what the stranger who wrote it chose. Such a name
is used only if the user gave the same name, said that the file is trusted, or made the run on this machine: then its
config carries a message authentication code (HMAC-SHA256) made with a key that only this user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.errors import CheckpointError
from rl_training.naming import PYTHON_PREFIX

KEY_BYTES = 32
PURPOSE = b"rl-training config\n"  # what else the key may sign one day begins otherwise
NAMING_KEYS = ("algo", "algo_kwargs", "callbacks", "loggers", "wrappers")  # the config's keys that may name code
ENVIRONMENT_KEYS = ("env_id", "tasks")
# Beginnings of names that import nothing: an object that is passed again, and data.
HARMLESS = {"algo_kwargs": ("minari:",)}
BRIDGES = ("GymV21Environment-v0", "GymV26Environment-v0")  # they import what their arguments name


class UntrustedError(CheckpointError):
    """A file that was received wants to import code that the user did not choose."""


class NamedCode(NamedTuple):
    key: str
    name: str


def sign(config: Mapping[str, Any]) -> str:
    """The code that proves later that this user made the config here; empty where no key can be kept."""
    key = _user_key()
    return "" if key is None else _authentication_code(config, key)


def is_own(config: Mapping[str, Any], signature: Any) -> bool:
    """Whether this user made the config on this machine."""
    key = _user_key()
    if key is None or not isinstance(signature, str):
        return False
    return hmac.compare_digest(_authentication_code(config, key).encode(), signature.encode())


def refuse_strange_code(
    config: Mapping[str, Any], *, path: Path | str, given: Collection[str], needs_env: bool
) -> None:
    """Raises UntrustedError if using a received config would import anything but the names that the user gave."""
    for key, name in code_named_in(config, needs_env=needs_env):
        if name not in given:
            naming = f"name it yourself with --env {name} (env= in Python), or " if key in ENVIRONMENT_KEYS else ""
            raise UntrustedError(
                f"{path} wants to import {name!r} ({key}), and was not made on this machine by you: "
                f"{naming}trust all that it names with --trust (trust=True in Python)"
            )


def code_named_in(config: Mapping[str, Any], *, needs_env: bool = True) -> list[NamedCode]:
    """Everything that using a stored config would import, beside the package itself and registered environments."""
    environment = "tasks" if config.get("tasks") else "env_id"
    keys = (*NAMING_KEYS, environment) if needs_env else NAMING_KEYS
    return [NamedCode(key, name) for key in keys for name in _strings(config.get(key)) if _imports(key, name)]


def _imports(key: str, name: str) -> bool:
    """Gymnasium imports a module only for an id with a colon; one without is looked up among registered ids."""
    return name in BRIDGES or (":" in name and not name.startswith((PYTHON_PREFIX, *HARMLESS.get(key, ()))))


def _strings(tree: Any) -> Iterator[str]:
    """All text in a tree, the keys of its mappings included, however deep it is."""
    level: list[Any] = [tree]
    while level:
        yield from (node for node in level if isinstance(node, str))
        mappings = [node for node in level if isinstance(node, Mapping)]
        lists = [node for node in level if isinstance(node, list | tuple)]
        level = [child for node in (*mappings, *lists) for child in node]
        level += [child for node in mappings for child in node.values()]


def _authentication_code(config: Mapping[str, Any], key: bytes) -> str:
    """Covers the whole config, so that it proves nothing about any other."""
    message = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, PURPOSE + message, hashlib.sha256).hexdigest()


def key_path() -> Path:
    """In the user's state directory, as the XDG specification has it: a relative path there does not count."""
    stated = Path(os.environ.get("XDG_STATE_HOME", ""))
    home = stated if stated.is_absolute() else Path(os.path.expanduser("~")) / ".local" / "state"
    return home / "rl_training" / "key"


def _user_key() -> bytes | None:
    """The user's key, made at first use; None where it cannot be kept, or others could have read or written it."""
    path = key_path()
    try:
        if not path.exists():
            _make_key(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.geteuid()
        key = os.read(descriptor, KEY_BYTES + 1) if private else b""
    finally:
        os.close(descriptor)
    return key if len(key) == KEY_BYTES else None


def _make_key(path: Path) -> None:
    """Whole and private from the start; of two processes that make one, the first succeeds."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging = path.with_name(f".key-{secrets.token_hex(8)}")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        os.link(staging, path)
    except FileExistsError:
        pass
    finally:
        staging.unlink()
