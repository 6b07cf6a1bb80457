"""Whether an expert's demonstrations fit the environment in which they are to be imitated."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.data.demonstrations import COLUMNS, HOW_TO_RECORD, Demonstrations
from rl_training.data.trees import Tree, space_map, tree_leaves
from rl_training.errors import ConfigError

ROUNDING = 1e-4  # by which a recorded action may leave its bounds


def check_fit(demos: Demonstrations, observation: gym.Space, action: gym.Space, *, env_id: str, source: str) -> None:
    """Raises a ConfigError that names the source and the first thing that does not fit."""
    problem = (
        _wrong_rows(demos)
        or _wrong_environment(demos.env_id, env_id)
        or _wrong_observations(demos.obs, observation)
        or _wrong_actions(demos.actions.cpu().numpy(), action)
    )
    if problem:
        raise ConfigError(f"{source}: {problem}")


def _wrong_rows(demos: Demonstrations) -> str | None:
    if not len(demos):
        return f"the demonstrations are empty; {HOW_TO_RECORD}"
    counts = {name: len(getattr(demos, name)) for name in COLUMNS}
    counts |= {f"obs {number}": len(leaf) for number, leaf in enumerate(tree_leaves(demos.obs))}
    for name, rows in counts.items():
        if rows != len(demos):
            return f"{name} has {rows} rows and actions {len(demos)}"
    if not all(bool(torch.isfinite(leaf).all()) for leaf in (*tree_leaves(demos.obs), demos.actions)):
        return "a number in the demonstrations is not finite"
    return None


def _wrong_environment(recorded: str, env_id: str) -> str | None:
    """Versions may differ, and a factory's name says nothing of what it makes."""
    named = [re.sub(r"-v\d+$", "", name) for name in (recorded, env_id)]
    if all(named) and named[0] != named[1] and not any(":" in name for name in named):
        return f"the demonstrations are of {recorded!r}, and the run's environment is {env_id!r}; {HOW_TO_RECORD}"
    return None


def _wrong_observations(obs: Tree, space: gym.Space) -> str | None:
    expected = space_map(lambda leaf: leaf.shape or (), space)
    if isinstance(obs, dict) or isinstance(expected, dict):
        own, theirs = (set(tree) if isinstance(tree, dict) else set() for tree in (obs, expected))
        if own != theirs:
            return f"the observations are {_described(own)}, and the environment's {_described(theirs)}"
        return next(filter(None, (_wrong_observations(obs[key], space[key]) for key in own)), None)  # type: ignore[index]
    shape = tuple(obs.shape[1:])
    return None if shape == expected else f"the observations have shape {shape}, and the environment's {expected}"


def _described(keys: set[str]) -> str:
    return f"a mapping with the keys {', '.join(sorted(keys))}" if keys else "one array"


def _wrong_actions(actions: NDArray[Any], space: gym.Space) -> str | None:
    shape = actions.shape[1:]
    if shape != (space.shape or ()):
        return f"the actions have shape {shape}, not those of {space}"
    low, high = _bounds(space)
    if (actions < low - ROUNDING).any() or (actions > high + ROUNDING).any():
        return f"the actions lie between {actions.min()} and {actions.max()}, outside of {space}"
    return None


def _bounds(space: gym.Space) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(space.shape or ()), np.ones(space.shape or ())
