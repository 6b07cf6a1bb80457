"""How numba compiles the package's inner loops. Importing this loads numba: import what uses it when it is needed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core import event
from numba.core.caching import IndexDataCacheFile

from rl_training.kernels.tools.compiling import compiling_begins

FunctionT = TypeVar("FunctionT")

OPTIONS: Any = {"cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
INLINED: Any = {"forceinline": True, "_nrt": False}
PACKAGE = Path(__file__).parent.parent.parent


def _digest_of_sources() -> str:
    """Changes whenever a file changes that compiled code may have been made of."""
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.glob("kernels/**/*.py"), *PACKAGE.glob("search/*.py"), PACKAGE / "ops" / "search.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _digest_of_sources()


class _Compiling(event.Listener):
    """Numba notifies it of what it did not find on disk."""

    def on_start(self, compiling: Any) -> None:
        if compiling.data["dispatcher"].py_func.__module__.startswith("rl_training."):
            compiling_begins()

    def on_end(self, compiling: Any) -> None:
        """Nobody waits for it."""


event.register("numba:compile", _Compiling())


def _compiled(function: Any, **options: Any) -> Any:
    dispatcher = njit(**{**OPTIONS, **options})(function)
    cache = dispatcher._cache
    # Numba stamps what it keeps on disk with the function's own file, and would not notice that another one, whose
    # functions were compiled into it, has changed. Here each state of the sources has files of its own.
    name = f"{cache._impl.filename_base}-{SOURCES[:16]}"
    cache._cache_file = IndexDataCacheFile(cache.cache_path, name, SOURCES)
    return dispatcher


def compiled(function: FunctionT) -> FunctionT:
    """Compiles once and keeps the result on disk. Sums may be reordered; infinities keep their meaning."""
    return _compiled(function)


def exactly_compiled(function: FunctionT) -> FunctionT:
    """Compiles what has to give the bits that NumPy gives: every operation is rounded, in the order that is written."""
    return _compiled(function, fastmath=False)


def inlined(function: FunctionT) -> FunctionT:
    """Compiles a function that runs inside of another, which keeps the arrays alive.

    A call would pass each array by its ten fields, and count a reference to it.
    """
    return _compiled(function, **INLINED)
