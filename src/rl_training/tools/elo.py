"""How strong the checkpoints of a run are: games between all of them, and Elo ratings of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import combinations
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.envs.factory import make_env
from rl_training.errors import ConfigError
from rl_training.runtime.session import Session
from rl_training.search.policy import SearchPolicy
from rl_training.tools.play import legal_moves_in, plan_in

RANDOM_MOVES = 2  # at the beginning of each game: greedy players would always play the same one
EARNED_BY_NONE = 0.5  # a drawn game that each pair is taken to have played before: ratings stay finite
ITERATIONS = 500


class Player(NamedTuple):
    name: str
    policy: SearchPolicy


def elo_ratings(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratings by points `[N, N]`, row against column, a draw counting ½; the first player's is 0.

    They are Bradley and Terry's strengths (1952), found by Zermelo's iteration: 400 points are odds of ten to one.
    """
    earned = points + EARNED_BY_NONE * (1.0 - np.eye(len(points)))
    games, strengths = earned + earned.T, np.ones(len(points))
    for _ in range(ITERATIONS):
        expected = games / (strengths[:, None] + strengths[None, :])
        strengths = earned.sum(1) / expected.sum(1)
        strengths /= strengths[0]
    return 400.0 * np.log10(strengths)


def tournament(players: Sequence[Player], session: Session, *, games: int, seed: int) -> NDArray[np.float64]:
    """Points `[N, N]` of every pair's games, an even number of them: each opening is played with both sides."""
    if games < 2 or games % 2:
        raise ConfigError(f"games: an even number, since both sides are played; got {games}")
    points = np.zeros((len(players), len(players)))
    with closing(make_env(session.config.env_spec(session.env))) as env, session.kernels():
        for first, second in combinations(range(len(players)), 2):
            for game in range(games // 2):
                for mine, yours in ((first, second), (second, first)):
                    won = play_out(env, [players[mine].policy, players[yours].policy], seed=seed + game)
                    points[mine, yours] += 0.5 + 0.5 * won
                    points[yours, mine] += 0.5 - 0.5 * won
    return points


@torch.inference_mode()
def play_out(env: gym.Env, policies: Sequence[SearchPolicy], *, seed: int) -> float:
    """1, 0 or −1: what the first policy wins of a game that begins with random moves."""
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    turn, reward, over = 0, 0.0, False
    while not over:
        move = _random_move(env, obs, rng) if turn < RANDOM_MOVES else _best_move(policies[turn % 2], obs)
        obs, paid, terminated, truncated, _ = env.step(move)
        reward, over = float(paid) * (1.0 if turn % 2 == 0 else -1.0), terminated or truncated
        turn += 1
    return float(np.sign(reward))


def _random_move(env: gym.Env, obs: Any, rng: np.random.Generator) -> int:
    legal = legal_moves_in(obs)
    return int(rng.choice(legal)) if legal is not None else int(rng.integers(env.action_space.n))  # type: ignore[attr-defined]


def _best_move(policy: SearchPolicy, obs: Any) -> int:
    return int(policy.env_actions(plan_in(obs, policy).actions)[0])
