"""Catch (Mnih et al., 2014): the smallest game that is played from an image. `rl_training.envs.catch:Catch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Image = NDArray[np.uint8]


class Catch(gym.Env):
    """A ball falls down a board of cells; a paddle at the bottom moves left, stays or moves right.

    The observation is an image `[pixels, pixels, 1]`; the game ends when the ball is down, with 1 if it was caught and
    −1 if not.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, cells: int = 8, scale: int = 2, render_mode: str | None = None) -> None:
        self.cells, self.scale, self.render_mode = cells, scale, render_mode
        pixels = cells * scale
        self.observation_space = spaces.Box(0, 255, (pixels, pixels, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        self.row, self.column, self.paddle = 0, 0, cells // 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(self.cells)), self.cells // 2
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 0, self.cells - 1))
        self.row += 1
        down = self.row == self.cells - 1
        reward = (1.0 if self.column == self.paddle else -1.0) if down else 0.0
        return self._observation(), reward, down, False, {}

    def render(self) -> Any:
        return self._image().repeat(3, axis=-1).repeat(8, axis=0).repeat(8, axis=1)

    def state_dict(self) -> dict[str, Any]:
        return {"row": self.row, "column": self.column, "paddle": self.paddle}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.row, self.column, self.paddle = state["row"], state["column"], state["paddle"]

    def _observation(self) -> Any:
        return self._image()

    def _image(self) -> Image:
        board = np.zeros((self.cells, self.cells), dtype=np.uint8)
        board[-1, self.paddle] = 128
        board[self.row, self.column] = 255
        return board.repeat(self.scale, axis=0).repeat(self.scale, axis=1)[..., None]


class CatchVector(Catch):
    """The same game told in numbers: the ball's row and column and the paddle's column, in [0, 1]."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)

    def _observation(self) -> Any:
        return np.array([self.row, self.column, self.paddle], dtype=np.float32) / np.float32(self.cells - 1)
