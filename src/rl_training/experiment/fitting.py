"""Whether a stored state fits the parts that are to load it; one that does not is refused by its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rl_training.errors import CheckpointError

# How Python, NumPy, torch and environments refuse what they cannot load.
REFUSALS = (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError, AssertionError)
COUNTER_BITS, GENERATOR_BITS = 63, 128  # NumPy's PCG64 counts in 128 bits, of which the first may be 0
ENVIRONMENTS = "envs"  # their states have the form that they like


class MisfitError(CheckpointError):
    """A state has another form than the part that is to load it."""

    def __init__(self, key: str, reason: str, path: Path | str | None = None) -> None:
        super().__init__(f"{'' if path is None else f'{path}: '}the state {key!r} does not fit: {reason}")
        self.key, self.reason = key, reason


@contextmanager
def loading_part(name: str) -> Iterator[None]:
    """Names the part whose state cannot be loaded."""
    try:
        yield
    except MisfitError as error:
        raise MisfitError(f"{name}/{error.key}", error.reason) from error
    except REFUSALS as error:
        raise MisfitError(name, f"{type(error).__name__}: {' '.join(str(error).split())}") from error


@contextmanager
def loading_from(path: Path | str) -> Iterator[None]:
    """Names the file, too."""
    try:
        yield
    except MisfitError as error:
        raise MisfitError(error.key, error.reason, path) from error


def load_fitting(part: Any, name: str, state: Mapping[str, Any]) -> None:
    """Loads the state of that name into a part that was just made, if it has the form of the part's own."""
    with loading_part(name):
        refuse_misfit(state[name], part.state_dict(), "")
        part.load_state_dict(state[name])


def refuse_misfit(stored: Any, fresh: Any, key: str) -> None:
    """Compares keys, types and shapes. What is empty or None in a new part may be anything: it grows in training."""
    if isinstance(fresh, Mapping):
        _refuse_unless(isinstance(stored, Mapping), key, "a mapping", stored)
        for name, own in fresh.items():
            if name not in stored:
                raise MisfitError(_below(key, name), "it is missing")
            if name != ENVIRONMENTS:
                refuse_misfit(stored[name], own, _below(key, name))
    elif isinstance(fresh, list | tuple):
        _refuse_unless(isinstance(stored, list), key, "a list", stored)
        if fresh:
            _refuse_unless(len(stored) == len(fresh), key, f"a list of {len(fresh)}", stored)
        for index, (theirs, own) in enumerate(zip(stored, fresh, strict=False)):
            refuse_misfit(theirs, own, _below(key, index))
    elif isinstance(fresh, Tensor | np.ndarray):
        wanted = f"numbers of {fresh.dtype} and shape {tuple(fresh.shape)}"
        _refuse_unless(_fits(stored, fresh), key, wanted, stored)
    elif fresh is not None:
        _refuse_unless(_same_kind(stored, fresh), key, type(fresh).__name__, stored)


def _form(array: Any) -> tuple[type, str, tuple[int, ...]]:
    kind = Tensor if isinstance(array, Tensor) else np.ndarray
    return kind, str(array.dtype), tuple(array.shape)


def _fits(stored: Any, fresh: Any) -> bool:
    """An array without rows will have some."""
    if not isinstance(stored, Tensor | np.ndarray):
        return False
    first = 1 if fresh.shape[:1] == (0,) and stored.ndim else 0
    return _form(stored[:0] if first else stored) == _form(fresh)


def _same_kind(stored: Any, fresh: Any) -> bool:
    """A number may be whole where it could be any, and larger than a count only where the part's own is."""
    kinds = (int, float) if type(fresh) is float else (type(fresh),)
    allowed = COUNTER_BITS if _bits(fresh) <= COUNTER_BITS else GENERATOR_BITS
    return type(stored) in kinds and _bits(stored) <= allowed


def _bits(number: Any) -> int:
    return number.bit_length() if type(number) is int else 0


def _refuse_unless(fits: bool, key: str, wanted: str, stored: Any) -> None:
    if not fits:
        raise MisfitError(key, f"expected {wanted}, got {_described(stored)}")


def _described(stored: Any) -> str:
    if isinstance(stored, Tensor | np.ndarray):
        return f"numbers of {stored.dtype} and shape {tuple(stored.shape)}"
    if isinstance(stored, list | Mapping):
        return f"a {type(stored).__name__} of {len(stored)}"
    return f"{type(stored).__name__} {str(stored)[:40]!r}"


def _below(key: str, name: object) -> str:
    return f"{key}/{name}" if key else str(name)
