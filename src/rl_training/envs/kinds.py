"""Kinds of environments: what decides which settings a first run should have."""

from __future__ import annotations

from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.types import Spaces

Kind = Literal["vectors", "continuous", "grids", "images"]
LARGEST_GRID = 35  # cells on the shorter side; the kernels of Mnih et al. (2015) need 36 pixels


def kind_of(given: Spaces) -> Kind:
    """Images and grids by what is seen, continuous control by what is done; the rest are vectors."""
    sides = [sorted(shape)[-2] for shape in _plane_shapes(given.observation)]
    if sides:
        return "images" if max(sides) > LARGEST_GRID else "grids"
    return "continuous" if isinstance(given.action, spaces.Box) else "vectors"


def _plane_shapes(space: gym.Space) -> list[tuple[int, ...]]:
    """The shapes of all parts with three axes whose numbers are bytes or truth values."""
    if isinstance(space, spaces.Dict):
        return [shape for part in space.values() for shape in _plane_shapes(part)]
    shape = space.shape or ()
    is_plane = len(shape) == 3 and np.dtype(space.dtype) in (np.uint8, np.int8, np.bool_)
    return [shape] if is_plane else []
