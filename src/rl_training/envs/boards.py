"""Board games for two: `rl_training.envs.boards:TicTacToe` and `rl_training.envs.boards:ConnectFour`.

How they are told to a policy is written in `turns`; opponents are named in `opponents`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.envs.opponents import Opponent, make_opponent, play_randomly
from rl_training.envs.turns import TurnGame
from rl_training.errors import ConfigError

Board = NDArray[np.int8]  # 0: empty, 1: the first player's, −1: the second's


class BoardGame(TurnGame):
    """A game on a grid that whoever has `in_a_row` of their own in a line wins.

    With `random_opening` a game begins after up to so many random moves: a policy that plays both sides learns to
    answer moves that it would not make.
    """

    rows: int
    columns: int
    in_a_row: int
    num_actions: int

    def __init__(self, opponent: str | None = None, render_mode: str | None = None, *, random_opening: int = 0) -> None:
        if not 0 <= random_opening < self.rows * self.columns:
            raise ConfigError(f"random_opening: from 0 to one less than the board has cells, got {random_opening}")
        self.render_mode, self.random_opening = render_mode, random_opening
        self.observation_space = spaces.Box(0, 1, (self.rows, self.columns, 2), np.uint8)
        self.action_space = spaces.Discrete(self.num_actions)
        self.opponent: Opponent | None = None if opponent is None else make_opponent(opponent)
        self.has_opponent = opponent is not None
        self.board, self.to_play = self.empty(), 1

    # ---- the rules, as opponents use them too

    def empty(self) -> Board:
        return np.zeros((self.rows, self.columns), dtype=np.int8)

    @abstractmethod
    def legal(self, board: Board) -> NDArray[np.bool_]:
        """Which moves the board allows."""

    @abstractmethod
    def cell(self, board: Board, move: int) -> tuple[int, int]:
        """Where a piece ends up."""

    def after(self, board: Board, move: int, player: int) -> Board:
        following = board.copy()
        following[self.cell(board, move)] = player
        return following

    def has_won(self, board: Board, player: int) -> bool:
        """Tells whether the player has a line, by the bits of a number in which a row ends with an empty cell."""
        own = np.zeros((self.rows, self.columns + 1), dtype=np.bool_)
        own[:, :-1] = board == player
        packed = np.packbits(own, axis=1)
        cells, row = int.from_bytes(packed.tobytes(), "big"), 8 * packed.shape[1]
        for step in (1, row, row + 1, row - 1):
            line = cells
            for k in range(1, self.in_a_row):
                line &= cells >> (k * step)
            if line:
                return True
        return False

    # ---- the environment

    def begin(self) -> None:
        self.board, self.to_play = self.empty(), 1
        for _ in range(self.np_random.integers(self.random_opening, endpoint=True) if self.random_opening else 0):
            _, over = self.move(play_randomly(self, self.board, self.to_play, self.np_random))
            if over:
                self.begin()
                return

    def mover(self) -> int:
        return 0 if self.to_play == 1 else 1

    def legal_moves(self) -> NDArray[np.bool_]:
        return self.legal(self.board)

    def opponents_move(self) -> int:
        assert self.opponent is not None
        return self.opponent(self, self.board, self.to_play, self.np_random)

    def move(self, move: int) -> tuple[float, bool]:
        self.board = self.after(self.board, move, self.to_play)
        won = self.has_won(self.board, self.to_play)
        self.to_play = -self.to_play
        return float(won), won or not self.legal(self.board).any()

    def observation(self) -> Any:
        return np.stack([self.board == self.to_play, self.board == -self.to_play], axis=-1).astype(np.uint8)

    def render(self) -> Any:
        lines = [" ".join(".XO"[piece] for piece in row) for row in self.board.tolist()]
        return "\n".join(lines)

    def state_dict(self) -> dict[str, Any]:
        return {"board": self.board.tolist(), "to_play": self.to_play}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.board, self.to_play = np.array(state["board"], dtype=np.int8), state["to_play"]


class TicTacToe(BoardGame):
    """Three in a row on 3 × 3; a move is the number of a cell, row by row."""

    rows, columns, in_a_row, num_actions = 3, 3, 3, 9

    def legal(self, board: Board) -> NDArray[np.bool_]:
        return board.reshape(-1) == 0

    def cell(self, board: Board, move: int) -> tuple[int, int]:
        return move // 3, move % 3


class ConnectFour(BoardGame):
    """Four in a row on 6 × 7; a move is a column, in which the piece falls down."""

    rows, columns, in_a_row, num_actions = 6, 7, 4, 7

    def legal(self, board: Board) -> NDArray[np.bool_]:
        return board[0] == 0

    def cell(self, board: Board, move: int) -> tuple[int, int]:
        return int((board[:, move] == 0).sum()) - 1, move
