"""Tells those who asked that inner loops are being compiled, which takes seconds. It does not load numba itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SENTENCE = "compiling inner loops: this happens once, and is kept on disk (ahead of time: rl-training doctor --warm)"
_waiting: list[Callable[[str], None]] = []


@contextmanager
def told_of_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Within this, `tell` gets a sentence when something is compiled for the first time."""
    _waiting.append(tell)
    try:
        yield
    finally:
        if tell in _waiting:
            _waiting.remove(tell)


def compiling_begins() -> None:
    while _waiting:
        _waiting.pop()(SENTENCE)
