"""An environment in a worker process that says itself which one it is: Gymnasium hands on no more than a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from rl_training.data.trees import zeros_for
from rl_training.envs.sync import write_row
from rl_training.errors import EnvironmentFault


class Traced(gym.Wrapper):
    """Refuses what is not an observation of the space, which shared memory would broadcast or cast in silence."""

    def __init__(self, env: gym.Env, index: int) -> None:
        super().__init__(env)
        self._index = index
        self._steps = 0
        self._row = zeros_for(env.observation_space, (1,))

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self._guard(self.env.reset, **kwargs)
        self._check(obs)
        return obs, info

    def step(self, action: Any) -> Any:
        self._steps += 1
        obs, *rest = self._guard(self.env.step, action)
        self._check(obs)
        return obs, *rest

    def _check(self, obs: Any) -> None:
        write_row(self._row, obs, 0, lambda problem: self._fault(f"observation {problem}"))

    def _guard(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            raise self._fault(f"{call.__name__} raised {type(error).__name__}: {error}") from error

    def _fault(self, problem: str) -> EnvironmentFault:
        return EnvironmentFault(f"environment {self._index}, step {self._steps}: {problem}")
