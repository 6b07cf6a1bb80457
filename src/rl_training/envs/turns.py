"""Games for two as environments that step by moves.

Without an opponent the policy plays both sides: an observation shows the game as the player to move sees it, and a
reward is what the player wins who has moved. With an opponent an episode is a game against it, on the side that chance
chooses, and everything is told from the policy's side; `info["is_success"]` says whether the move won it. `info` has
`action_mask`, the legal moves, and `to_play`, the number of the player to move.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class TurnGame(gym.Env):
    """The base of such games; `has_opponent` decides who moves for the other side."""

    metadata = {"render_modes": ["ansi"], "render_fps": 2}
    has_opponent: bool = False

    @abstractmethod
    def begin(self) -> None:
        """Goes back to the first position."""

    @abstractmethod
    def mover(self) -> int:
        """The player to move: 0 or 1."""

    @abstractmethod
    def legal_moves(self) -> NDArray[np.bool_]:
        """Which moves the position allows."""

    @abstractmethod
    def move(self, move: int) -> tuple[float, bool]:
        """Makes a move; returns what the player who made it wins by it, and whether the game is over."""

    @abstractmethod
    def opponents_move(self) -> int:
        """The move that the opponent chooses in the position."""

    @abstractmethod
    def observation(self) -> Any:
        """The game as the player to move sees it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.begin()
        if self.has_opponent and self.np_random.integers(2):
            self.move(self.opponents_move())
        return self.observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.legal_moves()[int(action)]:
            raise ValueError(f"move {int(action)} is not legal; info['action_mask'] tells which moves are")
        reward, over = self.move(int(action))
        if self.has_opponent and not over:
            lost, over = self.move(self.opponents_move())
            reward -= lost
        won = {"is_success": reward > 0} if self.has_opponent else {}
        return self.observation(), reward, over, False, self._info() | won

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.legal_moves().astype(np.int8), "to_play": self.mover()}
