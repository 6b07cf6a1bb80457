"""Environments that know since when they have been busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ctypes import c_double
from typing import Any

from numpy.typing import NDArray

from rl_training.envs.overdue import watch
from rl_training.envs.types import Envs, EnvStep


class TimedEnvs(Envs):
    """Another thread may ask how long the environments have been busy, and whether they are past `timeout_s`."""

    def __init__(self, envs: Envs, timeout_s: float = 0.0, *, busy_since: c_double | None = None) -> None:
        """`busy_since` may lie in memory that another process reads; it is 0 while they rest."""
        self.envs = envs
        self.num_envs, self.spaces = envs.num_envs, envs.spaces
        self.restorable, self.tasks = envs.restorable, envs.tasks
        self._timeout_s = timeout_s
        self._busy_since = c_double(0.0) if busy_since is None else busy_since
        if timeout_s:
            watch(self)

    @property
    def kind(self) -> str:
        return self.envs.kind

    def busy_seconds(self) -> float:
        since = self._busy_since.value
        return time.monotonic() - since if since else 0.0

    def overdue(self) -> str | None:
        if self.busy_seconds() <= self._timeout_s:
            return None
        return f"{self.at()}: it has not answered for {self._timeout_s:g} s (step_timeout_s)"

    def at(self) -> str:
        return self.envs.at()

    def reset(self, seed: int) -> Any:
        return self._timed(self.envs.reset, seed)

    def step(self, actions: NDArray[Any]) -> EnvStep:
        # As `_timed` does, without its call: this is the innermost loop.
        self._busy_since.value = time.monotonic()
        try:
            return self.envs.step(actions)
        finally:
            self._busy_since.value = 0.0

    def state_dict(self) -> dict[str, Any]:
        return self.envs.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        return self._timed(self.envs.load_state_dict, state)

    def close(self) -> None:
        self._timed(self.envs.close)

    def _timed(self, call: Callable[..., Any], *args: Any) -> Any:
        self._busy_since.value = time.monotonic()
        try:
            return call(*args)
        finally:
            self._busy_since.value = 0.0
