"""How numba compiles the package's inner loops. Importing this loads numba: import what uses it when it is needed."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from numba import njit

FunctionT = TypeVar("FunctionT")

OPTIONS: Any = {"cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
INLINED: Any = {"forceinline": True, "_nrt": False}


def compiled(function: FunctionT) -> FunctionT:
    """Compiled once and cached on disk. Sums may be reordered; infinities keep their meaning."""
    return cast(FunctionT, njit(**OPTIONS)(function))


def inlined(function: FunctionT) -> FunctionT:
    """The same for what runs inside of another, which keeps the arrays alive.

    A call would pass each array by its ten fields, and count a reference to it.
    """
    return cast(FunctionT, njit(**OPTIONS, **INLINED)(function))
