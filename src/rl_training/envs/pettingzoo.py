"""PettingZoo's classic games for two: `rl_training.envs.pettingzoo:PettingZoo` with `env_kwargs: {game: chess_v6}`."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.envs.opponents import unknown_opponent
from rl_training.envs.turns import TurnGame
from rl_training.errors import ConfigError, did_you_mean, import_extra

EXTRA = "pettingzoo"


def games() -> list[str]:
    """The names of PettingZoo's classic games."""
    found = import_extra("pettingzoo.classic", EXTRA)
    return [module.name for module in pkgutil.iter_modules(found.__path__) if "_v" in module.name]


class PettingZoo(TurnGame):
    """A classic game whose two players move by turns, with masks. Bits and bytes are told as bytes: they are a board.

    The state of a game is its moves, from the seed that it began with. Opponent: `random`.
    """

    def __init__(self, game: str, opponent: str | None = None, render_mode: str | None = None) -> None:
        if game not in games():
            raise ConfigError(f"PettingZoo has no classic game {game!r}; {did_you_mean(game, games())}")
        if opponent not in (None, "random"):
            raise unknown_opponent(opponent, ["random"])
        self.game = import_extra(f"pettingzoo.classic.{game}", EXTRA).env()
        players = self.game.possible_agents
        told = self.game.observation_space(players[0])
        action = self.game.action_space(players[0])
        if len(players) != 2 or not isinstance(told, spaces.Dict) or not isinstance(action, spaces.Discrete):
            raise ConfigError(f"PettingZoo's {game!r} is no game for two with masked, numbered moves")
        self.render_mode, self.has_opponent = render_mode, opponent is not None
        self.action_space = spaces.Discrete(int(action.n))
        self.observation_space = _as_bytes(told["observation"])
        self.first_seed = 0
        self.moves: list[int] = []

    def begin(self) -> None:
        self._restart(int(self.np_random.integers(2**31)))

    def _restart(self, seed: int) -> None:
        self.first_seed, self.moves = seed, []
        self.game.reset(seed=seed)

    def mover(self) -> int:
        return self.game.possible_agents.index(self.game.agent_selection)

    def legal_moves(self) -> NDArray[np.bool_]:
        return self._told()["action_mask"].astype(bool)

    def move(self, move: int) -> tuple[float, bool]:
        agent = self.game.agent_selection
        self.game.step(move)
        self.moves.append(move)
        over = any(self.game.terminations.values()) or any(self.game.truncations.values())
        if not over and self.game.agent_selection == agent:
            raise ValueError(f"{agent} moves twice in a row; planners with players: 2 need turns")
        return float(self.game.rewards[agent]), over

    def opponents_move(self) -> int:
        return int(self.np_random.choice(np.flatnonzero(self.legal_moves())))

    def observation(self) -> Any:
        return self._told()["observation"].astype(self.observation_space.dtype)

    def render(self) -> Any:
        seen = self.observation()
        return "\n".join(" ".join(".XO"[_piece(cell)] for cell in row) for row in seen) if seen.ndim == 3 else str(seen)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.first_seed, "moves": list(self.moves)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._restart(int(state["seed"]))
        for move in state["moves"]:
            self.move(int(move))

    def _told(self) -> dict[str, Any]:
        return self.game.observe(self.game.agent_selection)


def _as_bytes(space: Any) -> spaces.Box:
    """Whole numbers from 0 on as bytes, anything else in single precision."""
    if space.dtype.kind in "biu" and space.low.min() >= 0 and space.high.max() <= 255:
        return spaces.Box(int(space.low.min()), int(space.high.max()), space.shape, np.uint8)
    return spaces.Box(float(space.low.min()), float(space.high.max()), space.shape, np.float32)


def _piece(cell: Any) -> int:
    """0: none, 1: of the player to move, 2: of the other; by the first two planes."""
    return 1 if cell[0] else 2 if len(cell) > 1 and cell[1] else 0
