"""The one room of compiled and hand-derived code.

A kernel is the faster twin of one named plain function. It is taken for exact types only, under a condition that it
states, inside of `using("auto")`; what a reader finds in `ops`, `models` and `algorithms` is the program without it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

from rl_training.kernels.table import choose
from rl_training.kernels.tools.compiling import told_of_compiling
from rl_training.replaceable import choosing

__all__ = ["Mode", "told_of_compiling", "using"]

Mode = Literal["auto", "off"]


def using(mode: Mode) -> AbstractContextManager[None]:
    """Within it, kernels take the place of plain functions wherever they apply (`auto`), or nowhere (`off`)."""
    return choosing(choose if mode == "auto" else None)
