"""A grid world that is seen as an image. `rl_training.envs.grid:Grid`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Grid(gym.Env):
    """An agent walks up, right, down or left to a goal; both begin in cells that chance chooses.

    The observation is an image `[cells, cells, 2]`: one plane shows the agent, the other the goal. A step costs 0.1,
    the goal pays 1 and ends the episode, which is cut off after four times as many steps as a side has cells.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, cells: int = 5, render_mode: str | None = None) -> None:
        self.cells, self.render_mode = cells, render_mode
        self.observation_space = spaces.Box(0, 255, (cells, cells, 2), np.uint8)
        self.action_space = spaces.Discrete(len(MOVES))
        self.agent, self.goal, self.steps = (0, 0), (0, 0), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        places = self.np_random.choice(self.cells**2, size=2, replace=False)
        self.agent, self.goal = ((int(place) // self.cells, int(place) % self.cells) for place in places)
        self.steps = 0
        return self._image(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        row, column = (at + move for at, move in zip(self.agent, MOVES[int(action)], strict=True))
        self.agent = (min(max(row, 0), self.cells - 1), min(max(column, 0), self.cells - 1))
        self.steps += 1
        there = self.agent == self.goal
        return self._image(), 1.0 if there else -0.1, there, not there and self.steps == 4 * self.cells, {}

    def render(self) -> Any:
        blue = np.zeros((self.cells, self.cells, 1), dtype=np.uint8)
        return np.concatenate([self._image(), blue], axis=-1).repeat(16, axis=0).repeat(16, axis=1)

    def state_dict(self) -> dict[str, Any]:
        return {"agent": list(self.agent), "goal": list(self.goal), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.agent, self.goal, self.steps = tuple(state["agent"]), tuple(state["goal"]), state["steps"]

    def _image(self) -> Any:
        image = np.zeros((self.cells, self.cells, 2), dtype=np.uint8)
        image[(*self.agent, 0)] = image[(*self.goal, 1)] = 255
        return image
