"""Goal environments: observations hold the goal that was reached and the one that is wanted, and a function pays.

Their interface is that of Gymnasium-Robotics: a Dict with `achieved_goal` and `desired_goal`, `compute_reward` and, if
goals end episodes, `compute_terminated`, both of (achieved goals, desired goals, info).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.blame import told
from rl_training.data.hindsight import ACHIEVED, DESIRED
from rl_training.envs.factory import EnvSpec, choose_backend, make_env
from rl_training.envs.fetch import FetchEnv, is_fetch
from rl_training.envs.suites import ENVPOOL
from rl_training.errors import ConfigError, EnvironmentFault

REWARD, TERMINATED = "compute_reward", "compute_terminated"


def has_goals(space: gym.Space) -> bool:
    """Tells whether observations hold two goals of one form."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    achieved, desired = parts.get(ACHIEVED), parts.get(DESIRED)
    return achieved is not None and desired is not None and achieved.shape == desired.shape


def _judge(spec: EnvSpec) -> gym.Env:
    """An environment to ask."""
    if choose_backend(spec) != ENVPOOL:
        return make_env(spec)
    if not is_fetch(spec.name):
        raise ConfigError(
            f"her_ratio: of EnvPool's environments only Fetch's can say what a goal pays, not {spec.name}"
        )
    return FetchEnv(spec.name, spec.kwargs)


class GoalRewards:
    """Asks an environment of its own, which it steps only once, what reaching a goal pays and whether it ends."""

    def __init__(self, spec: EnvSpec) -> None:
        self._name = spec.name
        if spec.tasks:
            raise ConfigError("her_ratio is for one environment, and there are several tasks; leave it out")
        self._env = _judge(spec)
        space = self._env.observation_space
        if not has_goals(space):
            raise ConfigError(f"her_ratio: observations of {spec.name} have no {ACHIEVED} and {DESIRED}; leave it out")
        assert isinstance(space, gym.spaces.Dict)
        self._dtype, self._goal_axes = space[ACHIEVED].dtype, len(space[ACHIEVED].shape or ())
        self._reward, self._terminated = self._method(REWARD), self._method(TERMINATED)
        if self._reward is None:
            raise ConfigError(f"her_ratio: {spec.name} has no {REWARD}(achieved_goal, desired_goal, info); give it one")
        self._refuse_other_rewards()

    @property
    def ends_episodes(self) -> bool:
        return self._terminated is not None

    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Asks what the environment pays, `[…]`, for goals `[…, G]`."""
        return self._ask(REWARD, self._reward, achieved, desired).astype(np.float32)

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_]:
        return self._ask(TERMINATED, self._terminated, achieved, desired).astype(bool)

    def _method(self, name: str) -> Callable[..., Any] | None:
        return self._env.get_wrapper_attr(name) if self._env.has_wrapper_attr(name) else None

    def _ask(self, name: str, method: Any, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[Any]:
        """Replayed goals are in single precision; the environment gets them in its own."""
        rows = achieved.shape[: achieved.ndim - self._goal_axes]
        goals = (part.astype(self._dtype).reshape(-1, *part.shape[len(rows) :]) for part in (achieved, desired))
        try:
            answer = np.asarray(method(*goals, {}))
        except Exception as error:  # code of the user's
            raise EnvironmentFault(f"{name} of {self._name} failed: {told(error)}") from error
        if answer.shape != (count := int(np.prod(rows)),):
            found = f"{name} of {self._name} answers {count} goals with shape {answer.shape}"
            raise EnvironmentFault(f"{found}; it has to take goals [N, …] and answer [N]")
        return answer.reshape(rows)

    def _refuse_other_rewards(self) -> None:
        """Compares what a step pays with what the function says of it: wrappers may have changed one of the two."""
        self._env.action_space.seed(0)
        self._env.reset(seed=0)
        obs, paid, *_ = self._env.step(self._env.action_space.sample())
        goals = (np.stack([np.asarray(obs[key])] * 2) for key in (ACHIEVED, DESIRED))
        said = self.rewards(*goals)
        if not np.allclose(said, float(paid), atol=1e-5):
            raise ConfigError(
                f"her_ratio: a step of {self._name} paid {float(paid):g}, and {REWARD} says {said[0]:g}; "
                "leave out wrappers that change rewards or goals"
            )
