"""Writing a run's files: links in a received run are not followed, and every failure names the path and the cause."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rl_training.errors import ConfigError, RLTrainingError

NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC


def cause_of(error: OSError) -> str:
    """Why the system refused, in its own words; `O_NOFOLLOW` meets a link with words that mislead."""
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, and a run's files must be its own"
    return error.strerror or str(error)


@contextmanager
def naming_failures(path: Path | str, error_class: type[RLTrainingError] = RLTrainingError) -> Iterator[None]:
    """Turns what the system refuses into one line with the path and the cause."""
    try:
        yield
    except OSError as error:
        raise error_class(f"cannot write {path}: {cause_of(error)}") from error


def refuse_unwritable(path: Path | str) -> None:
    """Finds out before the work begins whether its result can be written; the folders above are made."""
    path = Path(path)
    is_new = not path.exists()
    with naming_failures(path, ConfigError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if is_new:
            path.unlink(missing_ok=True)  # another process may have tried the same


def open_to_append(path: Path) -> TextIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | NO_LINKS, 0o666)
    return open(descriptor, "a", encoding="utf-8", newline="")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A new text that takes a file's place, at once, when the block ends without an error; or nothing is left."""
    staging = path.with_name(f".tmp-{path.name}")
    with suppress(FileNotFoundError):
        staging.unlink()  # what a killed process, or a stranger, left there
    try:
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o666)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(staging, path)
    except BaseException:
        with suppress(OSError):
            staging.unlink()
        raise
