"""Checks of the answers of environments: whatever is no answer is a fault that names the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.data.trees import space_map
from rl_training.errors import EnvironmentFault

Fault = Callable[[str], Exception]  # makes the error of a problem

NUMBERS = (float, int, np.floating, np.integer, np.bool_)
FLAGS = (bool, np.bool_, int, np.integer)
FIVE_PARTS = "step must return (observation, reward, terminated, truncated, info)"
SPACES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


def step_parts(answer: Any, fault: Fault) -> tuple[Any, float, bool, bool, Any]:
    """The five parts of what `step` returned; nothing is asked of the last one, info."""
    try:
        obs, reward, terminated, truncated, info = answer
    except (TypeError, ValueError) as error:
        found = f"{len(answer)} parts" if isinstance(answer, (tuple, list)) else repr(answer)
        raise fault(f"{FIVE_PARTS}, it returned {found}") from error
    if not isinstance(reward, NUMBERS):
        reward = _scalar("reward", reward, "biuf", fault)
    if not isinstance(terminated, FLAGS):
        terminated = _scalar("terminated", terminated, "biu", fault)
    if not isinstance(truncated, FLAGS):
        truncated = _scalar("truncated", truncated, "biu", fault)
    return obs, float(reward), bool(terminated), bool(truncated), info


def reset_obs(answer: Any, fault: Fault) -> Any:
    """The observation of what `reset` returned."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise fault(f"reset must return (observation, info), it returned {type(answer).__name__}")
    return answer[0]


def _scalar(name: str, value: Any, kinds: str, fault: Fault) -> Any:
    """The number that an array without axes holds."""
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in kinds:
        wanted = "a number" if "f" in kinds else "True or False"
        raise fault(f"{name} must be {wanted}, it is {value!r}")
    return array.item()


def write_row(buffer: Any, obs: Any, index: int, fault: Fault) -> None:
    """Copies one observation into its row; an array of another shape or kind is not an observation."""
    if isinstance(buffer, Mapping):
        if not isinstance(obs, Mapping) or obs.keys() != buffer.keys():
            raise fault(f"must be a mapping with the keys {sorted(buffer)}")
        for key, column in buffer.items():
            write_row(column, obs[key], index, partial(_within, key, fault))
        return
    try:
        array = obs if isinstance(obs, np.ndarray) else np.asarray(obs)
    except ValueError as error:  # rows of different lengths
        raise fault(f"is no array: {error}") from error
    if array.shape != buffer.shape[1:]:
        raise fault(f"has shape {array.shape}, its space says {buffer.shape[1:]}")
    if array.dtype != buffer.dtype and not np.can_cast(array.dtype, buffer.dtype, "same_kind"):
        raise fault(f"has dtype {array.dtype}, its space says {buffer.dtype}")
    buffer[index] = array


def _within(key: str, fault: Fault, problem: str) -> Exception:
    return fault(f"{key!r} {problem}")


def check_spaces(name: str, observation: Any, action: Any) -> None:
    """Refuses spaces that no network here is made for, by name, before anything is built for them."""

    def check(space: Any) -> None:
        if not isinstance(space, SPACES):
            raise EnvironmentFault(
                f"{name}: the observation space {space} is not supported; it must be Box, Discrete, MultiDiscrete, "
                "MultiBinary, or a Dict or Tuple of them, in which text is left out"
            )

    space_map(check, observation)
    if not isinstance(action, gym.Space):
        raise EnvironmentFault(f"{name}: the action space is {action}, not a gymnasium Space")
