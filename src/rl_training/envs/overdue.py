"""Which environments have been busy for too long. This module imports nothing, so that everybody may ask early."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Timed(Protocol):
    def overdue(self) -> str | None:
        """Says which environment has been busy for longer than it may; None while all is well."""


_timed: WeakSet[Timed] = WeakSet()


def watch(envs: Timed) -> None:
    """Has `find_overdue` ask these environments from now on."""
    _timed.add(envs)


def find_overdue() -> str | None:
    """The first complaint of all environments of this process that are watched; any thread may ask."""
    return next((complaint for envs in list(_timed) if (complaint := envs.overdue())), None)
