"""EnvPool's C++ environments behind the one step semantics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.observations import without_keys
from rl_training.envs.suites import ENVPOOL, ENVPOOL_PREFIX
from rl_training.envs.types import Spaces
from rl_training.envs.vector import VectorEnvs
from rl_training.errors import EnvironmentFault, import_extra

TEXT_KEYS = ("mission",)  # MiniGrid's text, which EnvPool gives as bytes in a Box


class EnvPoolEnvs(VectorEnvs):
    """EnvPool takes its seed when it is made, so every reset makes it anew."""

    def __init__(self, env_id: str, num_envs: int, options: Mapping[str, Any]) -> None:
        name = env_id.removeprefix(ENVPOOL_PREFIX)
        make = import_extra(ENVPOOL, ENVPOOL).make_gymnasium
        self._make = partial(make, name, **{"num_envs": num_envs, "num_threads": 1, **options})
        envs = self._make(seed=0)
        if (players := int(envs.spec.config.max_num_players)) > 1:
            envs.close()
            raise EnvironmentFault(
                f"{env_id} has {players} players, and answers with a row for each of them in every environment; "
                "one policy acts for one player here: choose an environment for one"
            )
        self._dropped = _text_keys(envs.observation_space)
        observation = without_keys(envs.observation_space, self._dropped)
        super().__init__(envs, same_step=False, spaces=Spaces(observation, envs.action_space))
        self.restorable = False

    def reset(self, seed: int) -> Any:
        self.envs.close()
        self.envs = self._make(seed=seed)
        self._ended[:] = False
        self._last_obs, _ = self._guard(self.envs.reset)
        return self._last_obs

    def _guard(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        obs, *rest = super()._guard(call, *args, **kwargs)
        return without_keys(obs, self._dropped), *rest


def _text_keys(space: gym.Space) -> tuple[str, ...]:
    if not isinstance(space, gym.spaces.Dict):
        return ()
    return tuple(key for key in TEXT_KEYS if key in space.keys() and space[key].dtype == np.uint8)  # noqa: SIM118
