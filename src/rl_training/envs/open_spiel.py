"""OpenSpiel's games for two: `rl_training.envs.open_spiel:OpenSpiel` with `env_kwargs: {game: connect_four}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.envs.opponents import rollouts_of, unknown_opponent
from rl_training.envs.turns import TurnGame
from rl_training.errors import ConfigError, import_extra

UCT_C, MEGABYTES = 1.4, 100  # of the search that an opponent is


class OpenSpiel(TurnGame):
    """A sequential zero-sum game, by its name or with its parameters, as `connect_four` or `go(board_size=9)`.

    An observation is OpenSpiel's tensor for the player to move, as a vector, and the player's number behind it. The
    outcomes of chance are drawn by the environment's generator. Opponents: `random`, and `rollouts:N`, OpenSpiel's own
    tree search with N simulations that end in random games.
    """

    def __init__(self, game: str, opponent: str | None = None, render_mode: str | None = None) -> None:
        pyspiel = import_extra("pyspiel", "open_spiel")
        try:
            self.game = pyspiel.load_game(game)
        except pyspiel.SpielError as error:
            raise ConfigError(f"OpenSpiel does not load the game {game!r}: {error}") from None
        kind = self.game.get_type()
        if (kind.dynamics, kind.utility, self.game.num_players()) != (
            pyspiel.GameType.Dynamics.SEQUENTIAL,
            pyspiel.GameType.Utility.ZERO_SUM,
            2,
        ):
            raise ConfigError(
                f"OpenSpiel's {game!r} is no game for two by turns, one of whom wins what the other loses"
            )
        self.render_mode, self.opponent, self.has_opponent = render_mode, opponent, opponent is not None
        self.rollouts = rollouts_of(opponent)
        if opponent not in (None, "random") and self.rollouts is None:
            raise unknown_opponent(opponent, ["random", "rollouts:200"])
        self.state = self.game.new_initial_state()
        size = self.game.observation_tensor_size() + 1
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = spaces.Discrete(self.game.num_distinct_actions())

    def begin(self) -> None:
        self.state = self.game.new_initial_state()
        self._draw_chance()

    def mover(self) -> int:
        return max(self.state.current_player(), 0)  # below 0 the game is over

    def legal_moves(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.game.num_distinct_actions(), dtype=bool)
        mask[self.state.legal_actions()] = True
        return mask

    def move(self, move: int) -> tuple[float, bool]:
        player, before = self.mover(), self.state.returns()
        self.state.apply_action(move)
        self._draw_chance()
        over = self.state.is_terminal()
        if not over and self.mover() == player:
            raise ValueError(f"player {player} moves twice in a row; planners with players: 2 need turns")
        return self.state.returns()[player] - before[player], over

    def opponents_move(self) -> int:
        if self.rollouts is None:
            return int(self.np_random.choice(self.state.legal_actions()))
        import pyspiel

        seeds = self.np_random.integers(2**31, size=2).tolist()
        evaluator = pyspiel.RandomRolloutEvaluator(1, seeds[0])
        bot = pyspiel.MCTSBot(self.game, evaluator, UCT_C, self.rollouts, MEGABYTES, True, seeds[1], False)
        return int(bot.step(self.state))

    def observation(self) -> Any:
        player = self.mover()
        return np.array([*self.state.observation_tensor(player), player], dtype=np.float32)

    def render(self) -> Any:
        return str(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {"history": [int(action) for action in self.state.history()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = self.game.new_initial_state()
        for action in state["history"]:
            self.state.apply_action(int(action))

    def _draw_chance(self) -> None:
        while self.state.is_chance_node():
            outcomes, chances = zip(*self.state.chance_outcomes(), strict=True)
            self.state.apply_action(int(self.np_random.choice(outcomes, p=chances)))
