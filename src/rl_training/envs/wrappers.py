"""Wrappers by name, as a config writes them: `wrappers: [masked_velocities, {time_limit: 200}, {frame_stack: 4}]`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.blame import told
from rl_training.envs.masks import IgnoredActionMasks
from rl_training.envs.types import ImageLayout, channels_last
from rl_training.errors import ConfigError, RLTrainingError, did_you_mean
from rl_training.naming import PYTHON_PREFIX, ask_again, import_named, names_code, python_name

# Which numbers of a classic-control observation are positions; the velocities are what a memory has to infer.
POSITIONS = {"CartPole": (0, 2), "Pendulum": (0, 1), "MountainCar": (0,), "Acrobot": (0, 1, 2, 3)}


class FrameStack(gym.Wrapper):
    """The last `k` observations side by side, oldest first: as channels of an image, appended for a vector.

    `layout` says which axis has an image's channels, where its shape would be misread.
    """

    def __init__(self, env: gym.Env, k: int, layout: ImageLayout = "auto") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ConfigError(f"frame_stack needs a Box observation space, got {space}")
        check_count("frame_stack", k)
        self._frames: deque[Any] = deque(maxlen=k)
        if len(space.shape) == 2:  # an image without channels gets them
            self._join: Callable[..., Any] = np.stack
        else:
            last = len(space.shape) == 3 and channels_last(space.shape, layout)
            self._join = partial(np.concatenate, axis=-1 if last else 0)
        low, high = (self._join([bound] * k) for bound in (space.low, space.high))
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype.type)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self._frames.extend([np.array(obs)] * (self._frames.maxlen or 1))
        return self._stacked(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(np.array(obs))  # a copy: the environment may reuse its array
        return self._stacked(), reward, terminated, truncated, info

    def _stacked(self) -> Any:
        return self._join(list(self._frames))

    def state_dict(self) -> dict[str, Any]:
        return {"frames": np.stack(list(self._frames))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._frames.extend(state["frames"])


class ActionRepeat(gym.Wrapper):
    """Every action is taken `k` times, or to the episode's end; the rewards are summed."""

    def __init__(self, env: gym.Env, k: int) -> None:
        super().__init__(env)
        check_count("action_repeat", k)
        self._count = k

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._count):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


def check_count(name: str, count: Any) -> None:
    """Refuses what is not a whole number of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{name} needs a whole number of at least 1, got {count!r}")


def masked_velocities(env: gym.Env) -> gym.Env:
    """Hides the velocities of a classic-control observation, so that the task needs a memory."""
    name = type(env.unwrapped).__name__.removesuffix("Env").removeprefix("Continuous_")
    space = env.observation_space
    if name not in POSITIONS or not isinstance(space, gym.spaces.Box):
        raise ConfigError(f"masked_velocities knows {', '.join(POSITIONS)}; {name} is none of them")
    if space != env.unwrapped.observation_space:
        raise ConfigError("masked_velocities must be the first wrapper that changes observations")
    kept = list(POSITIONS[name])
    masked = gym.spaces.Box(space.low[kept], space.high[kept], dtype=space.dtype.type)
    return gym.wrappers.TransformObservation(env, lambda obs: obs[kept], masked)


def clip_reward(env: gym.Env, low: float = -1.0, high: float = 1.0) -> gym.Env:
    _check_bounds("clip_reward", low, high)
    return gym.wrappers.TransformReward(env, lambda reward: min(max(float(reward), low), high))


def rescale_action(env: gym.Env, low: float = -1.0, high: float = 1.0) -> gym.Env:
    """Actions in [low, high] outside, the environment's own bounds inside."""
    _check_bounds("rescale_action", low, high)
    return gym.wrappers.RescaleAction(env, np.float32(low), np.float32(high))


def _check_bounds(name: str, low: Any, high: Any) -> None:
    numbers = all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in (low, high))
    if not (numbers and low < high):
        raise ConfigError(f"{name} needs numbers with low < high, got low {low!r} and high {high!r}")


def time_limit(env: gym.Env, max_episode_steps: int) -> gym.Env:
    check_count("time_limit", max_episode_steps)
    return gym.wrappers.TimeLimit(env, max_episode_steps)


WRAPPERS: dict[str, Callable[..., gym.Env]] = {
    "action_repeat": ActionRepeat,
    "clip_reward": clip_reward,
    "flatten": gym.wrappers.FlattenObservation,
    "frame_stack": FrameStack,
    "ignore_action_masks": IgnoredActionMasks,
    "masked_velocities": masked_velocities,
    "rescale_action": rescale_action,
    "time_limit": time_limit,
}


def parse_wrappers(specs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(name or callable, argument) of each; the argument is None, one value, or keyword arguments."""
    parsed: list[tuple[Any, Any]] = []
    for spec in specs:
        if isinstance(spec, Mapping) and len(spec) != 1:
            raise ConfigError(f"a wrapper is one name, or one name with its argument, got {dict(spec)}")
        wrapper, argument = next(iter(spec.items())) if isinstance(spec, Mapping) else (spec, None)
        is_code = callable(wrapper) or names_code(wrapper) or str(wrapper).startswith(PYTHON_PREFIX)
        if not is_code and str(wrapper) not in WRAPPERS:
            raise ConfigError(f"unknown wrapper {wrapper!r}; {did_you_mean(wrapper, WRAPPERS)}")
        parsed.append((wrapper, argument))
    return parsed


def _maker(wrapper: Any) -> Callable[..., gym.Env]:
    if not isinstance(wrapper, str):
        return wrapper
    if wrapper.startswith(PYTHON_PREFIX):
        raise ask_again("the wrapper", wrapper, "wrappers=")
    return WRAPPERS[wrapper] if wrapper in WRAPPERS else import_named(wrapper, "the wrapper")


def apply_wrappers(env: gym.Env, specs: Sequence[Any]) -> gym.Env:
    for wrapper, argument in parse_wrappers(specs):
        make, name = _maker(wrapper), wrapper if isinstance(wrapper, str) else python_name(wrapper)
        keywords = argument if isinstance(argument, Mapping) else {}
        args = () if argument is None or isinstance(argument, Mapping) else (argument,)
        try:
            env = make(env, *args, **keywords)
        except RLTrainingError:
            raise
        except Exception as error:  # a wrapper may be the user's own
            raise ConfigError(f"cannot apply wrapper {name!r} with {argument!r}: {told(error)}") from error
        if not isinstance(env, gym.Env):
            raise ConfigError(f"wrapper {name!r} gave {type(env).__name__}, which is not a gymnasium.Env")
    return env
