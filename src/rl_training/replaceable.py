"""The one seam between the plain code and its kernels.

A function or method that is `replaceable` may have kernels: faster twins in `rl_training.kernels`. Outside of
`choosing` the plain code runs, and inside of it wherever no kernel's condition holds. Nothing else decides what runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Chooser = Callable[[Callable[..., Any], tuple[Any, ...]], "Callable[..., Any] | None"]

_CHOOSER: ContextVar[Chooser | None] = ContextVar("kernels", default=None)


def replaceable(plain: FunctionT) -> FunctionT:
    """Marks a function whose calls a kernel may take over; `plain` of the result is the function itself."""

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        choose = _CHOOSER.get()
        if choose is not None and (kernel := choose(call, args)) is not None:
            return kernel(*args, **kwargs)
        return twin.plain(*args, **kwargs)

    twin: Any = call
    twin.plain = plain
    return cast(FunctionT, call)


@contextmanager
def choosing(chooser: Chooser | None) -> Iterator[None]:
    """Has the chooser say which kernel takes a call's place; None: there are no kernels."""
    token = _CHOOSER.set(chooser)
    try:
        yield
    finally:
        _CHOOSER.reset(token)
