"""Goal environments: bits to flip, with Discrete actions, and a point to move, with a Box of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class GoalEnv(gym.Env):
    """A state is its own achieved goal; a step pays −1 until the goal is reached."""

    steps = 10

    def __init__(self, goals: spaces.Space, actions: spaces.Space) -> None:
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), goals))
        self.action_space = actions

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.is_reached(achieved, desired).astype(np.float64) - 1.0

    def is_reached(self, achieved: Any, desired: Any) -> Any:
        raise NotImplementedError

    def first(self) -> np.ndarray:
        raise NotImplementedError

    def moved(self, action: Any) -> np.ndarray:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.state, self.goal, self.t = self.first(), self.first(), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.state = self.moved(action)
        self.t += 1
        reached = bool(self.is_reached(self.state, self.goal))
        paid = float(self.compute_reward(self.state, self.goal, {}))
        return self._obs(), paid, self.ends(reached), self.t >= self.steps, {"is_success": reached}

    def ends(self, reached: bool) -> bool:
        return False

    def _obs(self) -> dict[str, Any]:
        return {"observation": self.state.copy(), "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}


class BitFlip(GoalEnv):
    """Flips one of the bits; at random, the goal is hardly ever met. Meeting it ends the episode."""

    def __init__(self, bits: int = 8) -> None:
        super().__init__(spaces.MultiBinary(bits), spaces.Discrete(bits))
        self.bits = self.steps = bits

    def first(self) -> np.ndarray:
        return self.np_random.integers(2, size=self.bits, dtype=np.int8)

    def moved(self, action: Any) -> np.ndarray:
        return self.state ^ (np.arange(self.bits) == action).astype(np.int8)

    def is_reached(self, achieved: Any, desired: Any) -> Any:
        return (achieved == desired).all(-1)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.is_reached(achieved, desired)

    def ends(self, reached: bool) -> bool:
        return reached


class PointReach(GoalEnv):
    """Moves a point in the plane by up to 0.2 in each direction, in double precision."""

    steps = 20

    def __init__(self) -> None:
        super().__init__(spaces.Box(-1, 1, (2,), np.float64), spaces.Box(-0.2, 0.2, (2,), np.float32))

    def first(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2)

    def moved(self, action: Any) -> np.ndarray:
        return (self.state + action).clip(-1, 1)

    def is_reached(self, achieved: Any, desired: Any) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) < 0.1
