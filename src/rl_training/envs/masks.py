"""Action masks: which actions an environment allows now, as a part of its observation.

Wherever an environment says it, the mask travels one way: a masked observation is a mapping whose key `action_mask`
holds a 1 for each legal action. Rollouts, replays and other processes carry it as they carry any observation, and
networks take it off before they look. An observation that was no mapping stands under the key `obs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.envs.types import Spaces
from rl_training.errors import EnvironmentFault

ACTION_MASK, OBS, METHOD = "action_mask", "obs", "action_masks"
Mask = NDArray[np.int8]

# Families that are known to give no mask, so that nobody has to reset one to find out.
WITHOUT_MASKS = ("classic_control.", "box2d.", "mujoco.", "phys2d.")


def mask_size(action: gym.Space) -> int | None:
    """The number of entries of a mask: of all the choices side by side; None where actions cannot be masked."""
    if isinstance(action, spaces.Discrete):
        return int(action.n)
    if isinstance(action, spaces.MultiDiscrete) and action.nvec.ndim == 1:
        return int(action.nvec.sum())
    return None


def is_masked(of_task: Spaces) -> bool:
    """Whether observations say which actions are legal."""
    observation, action = of_task
    mask = observation.spaces.get(ACTION_MASK) if isinstance(observation, spaces.Dict) else None
    return isinstance(mask, spaces.MultiBinary) and mask.shape == (mask_size(action),)


def masked_space(observation: gym.Space, size: int) -> spaces.Dict:
    """The space of masked observations, of those that may have a mask of another form already."""
    parts = dict(observation.spaces) if isinstance(observation, spaces.Dict) else {OBS: observation}
    return spaces.Dict({**parts, ACTION_MASK: spaces.MultiBinary((size,))})


def seen_space(of_task: Spaces) -> gym.Space:
    """The space of what networks look at: observations without the mask."""
    if not is_masked(of_task):
        return of_task.observation
    assert isinstance(of_task.observation, spaces.Dict)
    rest = without_mask(of_task.observation.spaces)
    return spaces.Dict(rest) if isinstance(rest, dict) else rest


def without_mask(obs: Mapping[str, Any]) -> Any:
    """A masked observation, or a mapping of its spaces, without the mask."""
    rest = {key: value for key, value in obs.items() if key != ACTION_MASK}
    return rest[OBS] if rest.keys() == {OBS} else rest


def joined(obs: Any, mask: Any) -> dict[str, Any]:
    """The masked observation."""
    return {**(obs if isinstance(obs, Mapping) else {OBS: obs}), ACTION_MASK: mask}


def flat_mask(mask: Any, size: int) -> Mask:
    """A mask as ones and zeros; MultiDiscrete's may come as a sequence with the part of each choice."""
    parts = mask if isinstance(mask, (tuple, list)) else [mask]
    flat = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
    if len(flat) != size:
        raise ValueError(f"an action mask has {len(flat)} entries, the action space needs {size}")
    return (flat != 0).astype(np.int8)


def has_choice(mask: Mask, action: gym.Space) -> bool:
    """Whether every choice has at least one legal action."""
    if isinstance(action, spaces.MultiDiscrete):
        starts = np.concatenate([[0], np.cumsum(action.nvec)[:-1]])
        return bool(np.logical_or.reduceat(mask, starts).all())
    return bool(mask.any())


def with_action_masks(env: gym.Env) -> gym.Env:
    """The environment with masked observations, if it says anywhere which actions are legal."""
    size = mask_size(env.action_space)
    return ActionMasks(env) if size is not None and _mask_source(env) else env


def _mask_source(env: gym.Env) -> str | None:
    if _has_key(env.observation_space):
        return "observation"
    if env.has_wrapper_attr(METHOD) and callable(env.get_wrapper_attr(METHOD)):
        return "method"
    return "info" if _gives_info(env) else None


def _has_key(observation: gym.Space) -> bool:
    return isinstance(observation, spaces.Dict) and ACTION_MASK in observation.spaces


def _gives_info(env: gym.Env) -> bool:
    module = f"{type(env.unwrapped).__module__}."
    if module.startswith(("ale_py.", *(f"gymnasium.envs.{family}" for family in WITHOUT_MASKS))):
        return False
    try:
        _, info = env.reset(seed=0)
    except (Exception, SystemExit):  # noqa: BLE001 - user code; its first real reset will say what is wrong
        return False
    return isinstance(info, Mapping) and ACTION_MASK in info


class ActionMasks(gym.Wrapper):
    """Joins to each observation the mask that the environment gives in it, by a method, or in `info`.

    An episode that has ended needs no mask: one that is missing there, or allows nothing, becomes one that allows all.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._source = _mask_source(env)
        self._size = mask_size(env.action_space) or 0
        self.observation_space = masked_space(env.observation_space, self._size)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._masked(obs, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._masked(obs, info, ended=bool(terminated or truncated)), reward, terminated, truncated, info

    def _masked(self, obs: Any, info: Mapping[str, Any], *, ended: bool) -> dict[str, Any]:
        given = None if ended and self._source == "method" else self._given(obs, info)
        if given is None and not ended:
            raise ValueError(f"there is no {ACTION_MASK!r} in info, where the first reset had one")
        mask = np.ones(self._size, dtype=np.int8) if given is None else flat_mask(given, self._size)
        if not has_choice(mask, self.action_space):
            if not ended:
                raise ValueError("the action mask allows no action, and the episode has not ended")
            mask = np.ones_like(mask)
        return joined(obs, mask)

    def _given(self, obs: Any, info: Mapping[str, Any]) -> Any:
        if self._source == "observation":
            return obs[ACTION_MASK]
        return self.env.get_wrapper_attr(METHOD)() if self._source == "method" else info.get(ACTION_MASK)


class IgnoredActionMasks(gym.Wrapper):
    """Hides an environment's action masks, wherever it gives them: the wrapper `ignore_action_masks`."""

    action_masks = None

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if isinstance(env.observation_space, spaces.Dict):
            kept = {key: space for key, space in env.observation_space.items() if key != ACTION_MASK}
            self.observation_space = spaces.Dict(kept)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        return self._without(*self.env.reset(**kwargs))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        obs, info = self._without(obs, info)
        return obs, reward, terminated, truncated, info

    def _without(self, *mappings: Any) -> Any:
        return tuple(
            {key: value for key, value in part.items() if key != ACTION_MASK} if isinstance(part, Mapping) else part
            for part in mappings
        )


class VectorMasks(gym.vector.VectorWrapper):
    """Joins to the observations of a vector environment the masks in them or in its `info`."""

    def __init__(self, env: gym.vector.VectorEnv) -> None:
        super().__init__(env)
        self._size = mask_size(env.single_action_space) or 0
        self._in_obs = _has_key(env.single_observation_space)
        self.single_observation_space = masked_space(env.single_observation_space, self._size)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return joined(obs, self._masks(obs, info, np.zeros(self.num_envs, dtype=bool))), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, rewards, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        same_step = "final_obs" in info
        if same_step:  # nobody acts in what ended an episode
            info = {**info, "final_obs": self._final(info["final_obs"])}
        masks = self._masks(obs, info, ended & (not same_step))
        return joined(obs, masks), rewards, terminated, truncated, info

    def _final(self, obs: Any) -> Any:
        if isinstance(obs, np.ndarray) and obs.dtype == object:
            rows = [row if row is None else joined(row, np.ones(self._size, np.int8)) for row in obs]
            return np.fromiter(rows, dtype=object, count=len(rows))
        return joined(obs, np.ones((self.num_envs, self._size), np.int8))

    def _masks(self, obs: Any, info: Mapping[str, Any], ended: NDArray[np.bool_]) -> Mask:
        given = obs[ACTION_MASK] if self._in_obs else info[ACTION_MASK]
        masks = np.stack([flat_mask(row, self._size) for row in given])
        for index, mask in enumerate(masks):
            if not has_choice(mask, self.single_action_space):
                if not ended[index]:
                    problem = "the action mask allows no action, and the episode has not ended"
                    raise EnvironmentFault(f"environment {index}: {problem}")
                mask[:] = 1
        return masks


def with_vector_masks(env: gym.vector.VectorEnv) -> gym.vector.VectorEnv:
    """The vector environment with masked observations, if they or its `info` say which actions are legal."""
    known = f"{type(env).__module__}.".startswith(tuple(f"gymnasium.envs.{family}" for family in WITHOUT_MASKS))
    if known or mask_size(env.single_action_space) is None:
        return env
    gives = _has_key(env.single_observation_space) or ACTION_MASK in env.reset(seed=0)[1]
    return VectorMasks(env) if gives else env
