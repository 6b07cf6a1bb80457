"""Training on a small environment whose answer is known, and what the policy then says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch

from rl_training.experiment.config import make_config
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session


def probed(algo: str, env: Callable[..., gym.Env], steps: int, *, num_envs: int = 8, **algo_kwargs: Any) -> Session:
    """Trains the algorithm for so many steps."""
    config = {
        "algo": algo,
        "env_id": "probe",
        "total_timesteps": steps,
        "num_envs": num_envs,
        "threads": 1,
        "device": "cpu",
        "eval_episodes": 0,
        "algo_kwargs": algo_kwargs,
    }
    session = Session(make_config(config), env=env)
    run_training(session)
    return session


def values(session: Session, *observations: list[float]) -> list[float]:
    """Values observations that follow each other from the beginning of an episode."""
    policy, found = session.policy, []
    state = policy.initial_state(1)
    with torch.no_grad():
        for obs in torch.tensor(observations)[:, None]:
            found.append(policy.values(obs, state).item())
            state = policy.act(obs, state, deterministic=True).state
    return found
