"""Opponents for board games, by name: `random`, `one_ply`, `perfect` and `rollouts:N`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, did_you_mean

Rules = Any  # a `BoardGame`, of which opponents know the rules only
Opponent = Callable[[Rules, NDArray[np.int8], int, np.random.Generator], int]


def make_opponent(name: str) -> Opponent:
    """The opponent with the name; `rollouts:200` plays 200 random games from each position before it moves."""
    if count := rollouts_of(name):
        return Rollouts(count)
    if name in OPPONENTS:
        return OPPONENTS[name]()
    raise unknown_opponent(name, [*OPPONENTS, "rollouts:200"])


def rollouts_of(name: str | None) -> int | None:
    """The number of `rollouts:N`; None for any other name."""
    kind, _, count = (name or "").partition(":")
    return int(count) if kind == "rollouts" and count.isdigit() and int(count) > 0 else None


def unknown_opponent(name: str | None, known: list[str]) -> ConfigError:
    return ConfigError(f"unknown opponent {name!r}; {did_you_mean(str(name), known)}")


def legal_moves(game: Rules, board: NDArray[np.int8]) -> list[int]:
    return np.flatnonzero(game.legal(board)).tolist()


def play_randomly(game: Rules, board: NDArray[np.int8], player: int, rng: np.random.Generator) -> int:
    return int(rng.choice(legal_moves(game, board)))


def play_one_ply(game: Rules, board: NDArray[np.int8], player: int, rng: np.random.Generator) -> int:
    """Wins if one move wins, hinders the other from winning with the next, and else plays randomly."""
    moves = legal_moves(game, board)
    for whose in (player, -player):
        for move in moves:
            if game.has_won(game.after(board, move, whose), whose):
                return move
    return int(rng.choice(moves))


class Perfect:
    """Plays one of the best moves, found by looking at every game that may follow: for games as small as TicTacToe."""

    def __init__(self) -> None:
        self._values: dict[tuple[bytes, int], int] = {}

    def __call__(self, game: Rules, board: NDArray[np.int8], player: int, rng: np.random.Generator) -> int:
        if board.size > 9:
            raise ConfigError(f"opponent 'perfect' is for boards of nine cells, this one has {board.size}")
        moves = legal_moves(game, board)
        values = [-self.value(game, game.after(board, move, player), -player) for move in moves]
        return int(rng.choice([move for move, value in zip(moves, values, strict=True) if value == max(values)]))

    def value(self, game: Rules, board: NDArray[np.int8], player: int) -> int:
        """The outcome for the player to move, when both play as well as one can."""
        key = (board.tobytes(), player)
        if key not in self._values:
            moves = legal_moves(game, board)
            if game.has_won(board, -player):
                self._values[key] = -1
            elif not moves:
                self._values[key] = 0
            else:
                self._values[key] = max(-self.value(game, game.after(board, m, player), -player) for m in moves)
        return self._values[key]


class Rollouts:
    """Plays the move after which it wins most of its random games, which bounds of confidence share among the moves."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, game: Rules, board: NDArray[np.int8], player: int, rng: np.random.Generator) -> int:
        moves = legal_moves(game, board)
        earned, tries = np.zeros(len(moves)), np.zeros(len(moves))
        for trial in range(max(self.count, len(moves))):
            bounds = earned / np.maximum(tries, 1) + np.sqrt(2.0 * np.log(trial + 1) / np.maximum(tries, 1))
            chosen = trial if trial < len(moves) else int(bounds.argmax())
            earned[chosen] += self._outcome(game, game.after(board, moves[chosen], player), player, rng)
            tries[chosen] += 1
        return moves[int(tries.argmax())]

    def _outcome(self, game: Rules, board: NDArray[np.int8], player: int, rng: np.random.Generator) -> float:
        """Plays on at random: 1, 0 or −1 for the player who has just moved."""
        mover = player
        while not game.has_won(board, mover):
            moves = legal_moves(game, board)
            if not moves:
                return 0.0
            mover = -mover
            board = game.after(board, moves[int(rng.integers(len(moves)))], mover)
        return 1.0 if mover == player else -1.0


OPPONENTS: dict[str, Callable[[], Opponent]] = {
    "random": lambda: play_randomly,
    "one_ply": lambda: play_one_ply,
    "perfect": Perfect,
}
