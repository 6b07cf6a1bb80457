"""Environments that say which actions are legal, in each of the three ways, and fail when an illegal one is taken."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Source = Literal["info", "observation", "method"]


class InvalidActionEnv(gym.Env):
    """As sb3-contrib's `InvalidActionEnvDiscrete`: the number that is seen pays, and so many others are not legal.

    With `strict`, an illegal action is an error; without, it ends the episode unpaid. `after_end` says what the mask is
    when an episode has ended: nothing legal, which is no fault there.
    """

    action_space: spaces.Discrete

    def __init__(
        self,
        source: Source = "info",
        *,
        dim: int = 6,
        invalid: int = 3,
        max_episode_steps: int = 10,
        strict: bool = True,
        dead_end_at: int | None = None,
    ) -> None:
        self.source, self.dim, self.invalid, self.length = source, dim, invalid, max_episode_steps
        self.strict, self.dead_end_at = strict, dead_end_at
        self.action_space = spaces.Discrete(dim)
        numbers = spaces.Box(0, 1, (dim,), np.float32)
        mask = spaces.Box(0, 1, (dim,), np.int8)
        with_mask = spaces.Dict({"numbers": numbers, "action_mask": mask})
        self.observation_space = with_mask if source == "observation" else numbers
        if source == "method":
            self.action_masks = lambda: self.legal.copy()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._ask()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        illegal = not self.legal[int(action)]
        assert not (illegal and self.strict), f"action {action} is not legal"
        reward = float(action == self.number)
        self.t += 1
        ended = self.t >= self.length or illegal
        obs, info = self._ask()
        if ended:
            self.legal = np.zeros(self.dim, dtype=bool)
        return obs, reward, ended, False, info

    def _ask(self) -> tuple[Any, dict[str, Any]]:
        self.number = int(self.np_random.integers(self.dim))
        others = [a for a in range(self.dim) if a != self.number]
        self.legal = np.ones(self.dim, dtype=bool)
        self.legal[self.np_random.choice(others, self.invalid, replace=False)] = False
        if self.t == self.dead_end_at:
            self.legal[:] = False
        seen = np.eye(self.dim, dtype=np.float32)[self.number]
        if self.source == "observation":
            return {"numbers": seen, "action_mask": self.legal.astype(np.int8)}, {}
        return seen, {"action_mask": self.legal.copy()} if self.source == "info" else {}

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "number": self.number, "legal": self.legal.astype(np.int8)}

    def load_state_dict(self, state: Any) -> None:
        self.t, self.number, self.legal = state["t"], state["number"], state["legal"].astype(bool)


class MaskedPairs(InvalidActionEnv):
    """MultiDiscrete([3, 2]), masked in parts: of the first choice two are legal, of the second one."""

    def __init__(self, source: Source = "info") -> None:
        super().__init__(source, dim=6, invalid=0)
        self.action_space = spaces.MultiDiscrete([3, 2])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first, second = map(int, action)
        assert first != self.number % 3, "the first choice is not legal"
        assert second == self.number % 2, "the second choice is not legal"
        self.t += 1
        obs, info = self._ask()
        return obs, 1.0, self.t >= self.length, False, info

    def _ask(self) -> tuple[Any, dict[str, Any]]:
        obs, _ = super()._ask()
        parts = np.arange(3) != self.number % 3, np.arange(2) == self.number % 2
        self.legal = np.concatenate(parts)
        if self.source == "observation":
            return {"numbers": obs["numbers"], "action_mask": np.pad(self.legal, (0, 1)).astype(np.int8)[:5]}, {}
        return obs, {"action_mask": parts} if self.source == "info" else {}


class MaskedVector(gym.vector.VectorEnv):
    """A vector form of its own, with masks in `info`: action 0 is legal at even steps, action 1 at odd ones."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, dead_end_at: int = -1, source: str = "info", **_: Any) -> None:
        self.num_envs, self.dead_end_at, self.source = num_envs, dead_end_at, source
        self.single_observation_space: spaces.Space = spaces.Box(0, 10, (1,), np.float32)
        if source == "observation":
            mask = spaces.Box(0, 1, (2,), np.int8)
            self.single_observation_space = spaces.Dict({"t": self.single_observation_space, "action_mask": mask})
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = np.zeros(self.num_envs, dtype=np.int64)
        return self._answer()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self.t >= 6
        assert (over | (actions == self.t % 2)).all(), "an action is not legal"
        self.t = np.where(over, 0, self.t + 1)
        obs, info = self._answer()
        return obs, np.ones(self.num_envs), self.t >= 6, np.zeros(self.num_envs, dtype=bool), info

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        masks = np.stack([self.t % 2 == 0, self.t % 2 == 1], axis=-1)
        masks[(self.t >= 6) | (self.t == self.dead_end_at)] = False
        seen = self.t[:, None].astype(np.float32)
        if self.source == "observation":
            return {"t": seen, "action_mask": masks.astype(np.int8)}, {}
        return seen, {"action_mask": masks}


gym.register("MaskedVector-v0", entry_point=InvalidActionEnv, vector_entry_point=MaskedVector)
