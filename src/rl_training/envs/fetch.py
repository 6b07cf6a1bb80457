"""One of EnvPool's Fetch environments alone, which also says what other goals would have paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.data.trees import tree_map
from rl_training.envs.envpool import EnvPoolEnvs
from rl_training.envs.suites import ENVPOOL_PREFIX


def is_fetch(env_id: str) -> bool:
    return env_id.removeprefix(ENVPOOL_PREFIX).startswith("Fetch")


class FetchEnv(gym.Env):
    """EnvPool pays inside of its C++ and offers no `compute_reward`, so the rule of Gymnasium-Robotics stands here."""

    def __init__(self, env_id: str, options: Mapping[str, Any]) -> None:
        self._envs = EnvPoolEnvs(env_id, 1, options)
        self.observation_space, self.action_space = self._envs.spaces
        self._config = self._envs.envs.spec.config

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return _only(self._envs.reset(0 if seed is None else seed)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._envs.step(np.asarray(action)[None])
        return _only(step.obs), float(step.rewards[0]), bool(step.terminated[0]), bool(step.truncated[0]), {}

    def compute_reward(self, achieved: NDArray[Any], desired: NDArray[Any], info: Any) -> NDArray[Any]:
        """Minus the distance of the two, or −1 where it is beyond the threshold (`reward_type: sparse`)."""
        distance = np.linalg.norm(achieved - desired, axis=-1)
        if self._config.reward_type == "sparse":
            return -(distance > self._config.distance_threshold).astype(np.float32)
        return -distance

    def close(self) -> None:
        self._envs.close()


def _only(rows: Any) -> Any:
    """The first row of a batch of one."""
    return tree_map(lambda leaf: leaf[0], rows)
