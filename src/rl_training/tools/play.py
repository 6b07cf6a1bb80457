"""A game of a person against a run's policy, in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.data.trees import batch_of_one, to_observations
from rl_training.envs.factory import make_env
from rl_training.envs.masks import ACTION_MASK
from rl_training.errors import ConfigError
from rl_training.runtime.session import EVALUATION, Session, derive_seed
from rl_training.search.policy import Plan, SearchPolicy

LEAVE = ("q", "quit", "exit")


def play_game(
    session: Session, *, side: int, ask: Callable[[str], str], show: Callable[[str], None], seed: int | None = None
) -> float | None:
    """Plays one game and returns what the person wins by it: 1, 0 or −1; None if they leave.

    `side` 0 moves first. `show` is given the board, and with each of the policy's moves its search.
    """
    policy = game_policy(session)
    with closing(make_env(session.config.env_spec(session.env), render_mode="ansi")) as env:
        begin = derive_seed(session.config.seed, EVALUATION) if seed is None else seed
        obs, _ = env.reset(seed=begin)
        turn, over, reward = 0, False, 0.0
        while not over:
            show(str(env.render()))
            move = _asked_move(env, obs, ask) if turn == side else _planned_move(session, policy, obs, show)
            if move is None:
                return None
            obs, paid, terminated, truncated, _ = env.step(move)
            reward, over = float(paid) * (1.0 if turn == side else -1.0), terminated or truncated
            turn = 1 - turn
        show(str(env.render()))
        return reward


def game_policy(session: Session) -> SearchPolicy:
    """The policy of a run that was trained in a game for two."""
    policy = session.policy
    if not isinstance(policy, SearchPolicy) or policy.params.players != 2:
        raise ConfigError(f"the run's policy ({session.config.algo}) was not trained in a game with players: 2")
    return policy


def legal_moves_in(obs: Any) -> list[int] | None:
    """The moves that an observation says are legal; None if it says nothing."""
    return np.flatnonzero(obs[ACTION_MASK]).tolist() if isinstance(obs, dict) and ACTION_MASK in obs else None


def plan_in(obs: Any, policy: SearchPolicy) -> Plan:
    """The search of one position."""
    return policy.plan(to_observations(batch_of_one(obs), policy.device), None)


def _asked_move(env: gym.Env, obs: Any, ask: Callable[[str], str]) -> int | None:
    """A legal move that the person names; None if they leave."""
    legal = legal_moves_in(obs)
    while True:
        answer = ask(f"your move {legal if legal is not None else env.action_space} (q leaves): ").strip().lower()
        if answer in LEAVE:
            return None
        if answer.isdigit() and (int(answer) in legal if legal is not None else env.action_space.contains(int(answer))):
            return int(answer)


@torch.inference_mode()
def _planned_move(session: Session, policy: SearchPolicy, obs: Any, show: Callable[[str], None]) -> int:
    with session.kernels():
        plan = plan_in(obs, policy)
    show(told_plan(plan))
    return int(policy.env_actions(plan.actions)[0])


def told_plan(plan: Plan) -> str:
    """The search of one position: its move, what it expects to win, and the moves that it thought of."""
    order = np.argsort(-plan.policy[0], kind="stable")[:5]
    shares = ", ".join(f"{move} {plan.policy[0, move]:.0%}" for move in order if plan.policy[0, move] >= 0.005)
    return f"plays {int(plan.actions[0])}, expects {plan.values[0]:+.2f}; thought of {shares}"
