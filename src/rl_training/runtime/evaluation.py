"""Evaluation: whole episodes on environments of its own, the same number from each, so that short ones do not win."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.rollout import Episode, task_means
from rl_training.data.trees import to_observations, tree_map
from rl_training.envs.types import Envs, EnvStep
from rl_training.errors import EnvironmentFault
from rl_training.runtime.collector import EpisodeTracker, restarted
from rl_training.runtime.policy import Policy

Watch = Callable[[Any, NDArray[Any], EnvStep], None]  # observations, executed actions, what came of them


@dataclass(frozen=True)
class Evaluation:
    episodes: tuple[Episode, ...]
    step: int = 0  # of training, at which the policy was as it was evaluated

    @property
    def returns(self) -> tuple[float, ...]:
        return tuple(episode.total_reward for episode in self.episodes)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(episode.length for episode in self.episodes)

    @property
    def return_mean(self) -> float:
        return float(np.mean(self.returns))

    def summary(self) -> dict[str, Any]:
        returns = np.array(self.returns)
        return {
            "return_mean": self.return_mean,
            "return_std": float(returns.std()),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "return_median": float(np.median(returns)),
            "length_mean": float(np.mean(self.lengths)),
            "length_min": int(min(self.lengths)),
            "length_max": int(max(self.lengths)),
            "episodes": len(returns),
            **task_means(self.episodes),
        }

    def row(self) -> dict[str, Any]:
        """The summary as a row of metrics."""
        return {"global_step": self.step} | {f"eval_{name}": value for name, value in self.summary().items()}


def episode_shares(episodes: int, num_envs: int) -> list[int]:
    """How many episodes each environment plays."""
    return [len(part) for part in np.array_split(np.arange(episodes), num_envs)]


@torch.inference_mode()
def evaluate(
    policy: Policy, envs: Envs, *, episodes: int, seed: int, deterministic: bool = True, watch: Watch | None = None
) -> Evaluation:
    """Environment `i` plays its share of the episodes; what it does beyond that does not count."""
    shares = episode_shares(episodes, envs.num_envs)
    played: list[list[Episode]] = [[] for _ in range(envs.num_envs)]
    generator = torch.Generator(policy.device).manual_seed(seed)
    tracker = EpisodeTracker(envs)
    obs, state = envs.reset(seed), policy.initial_state(envs.num_envs)
    while any(len(done) < share for done, share in zip(played, shares, strict=True)):
        acted = policy.act(to_observations(obs, policy.device), state, generator=generator, deterministic=deterministic)
        actions = policy.env_actions(acted.actions.cpu().numpy())
        seen = tree_map(np.copy, obs) if watch else None
        step = envs.step(actions)
        if watch:
            watch(seen, actions, step)
        obs, state = step.obs, restarted(acted.state, step.starts, policy)
        for index, episode in tracker.add(step):
            if not np.isfinite(episode.total_reward):
                raise EnvironmentFault(f"environment {index}: the return of an episode is not finite")
            if len(played[index]) < shares[index]:
                played[index].append(episode)
    return Evaluation(tuple(episode for done in played for episode in done))
