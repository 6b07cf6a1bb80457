"""Evaluation: whole episodes on environments of its own, the same number from each, so that short ones do not win."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.rollout import Episode, info_means, task_means
from rl_training.data.trees import to_observations, tree_leaves, tree_map
from rl_training.envs.types import Envs, EnvStep
from rl_training.envs.vector import first_bad_row, sums_are_finite
from rl_training.errors import EnvironmentFault
from rl_training.runtime.collector import restarted
from rl_training.runtime.episodes import EpisodeTracker
from rl_training.runtime.policy import Policy
from rl_training.runtime.stopping import Interruption

Watch = Callable[[Any, NDArray[Any], EnvStep], None]  # observations, executed actions, what came of them


@dataclass(frozen=True)
class Evaluation:
    episodes: tuple[Episode, ...]
    step: int = 0  # of training, at which the policy was as it was evaluated
    episodes_cut: int = 0  # those that did not end within `eval_max_steps`

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
            "episodes_cut": self.episodes_cut,
            **task_means(self.episodes),
            **info_means(self.episodes),
        }

    def row(self) -> dict[str, Any]:
        """The summary as a row of metrics."""
        return {"global_step": self.step} | {f"eval_{name}": value for name, value in self.summary().items()}


def score_text(scores: Mapping[str, Any]) -> str:
    """The scores of a summary in one line."""
    if scores.get("return_mean") is None:
        return "not evaluated"
    spread = f" ± {scores['return_std']:.1f}" if scores.get("return_std") is not None else ""
    tasks = [f"{key.partition('/')[2]} {mean:.1f}" for key, mean in scores.items() if key.startswith("return_mean/")]
    success = [f"success {scores['success_rate']:.0%}"] if "success_rate" in scores else []
    return ", ".join(
        [
            f"return {scores['return_mean']:.1f}{spread}",
            *tasks,
            *success,
            f"worst {scores['return_min']:.1f}",
            f"{scores['episodes']} episodes",
        ]
    )


def episode_shares(episodes: int, num_envs: int) -> list[int]:
    """How many episodes each environment plays."""
    return [len(part) for part in np.array_split(np.arange(episodes), num_envs)]


class _Shares:
    """Which episodes were played, by which environment, and who still owes some."""

    def __init__(self, episodes: int, num_envs: int, max_steps: int | None) -> None:
        self.shares = np.array(episode_shares(episodes, num_envs))
        self.played: list[list[Episode]] = [[] for _ in range(num_envs)]
        self.cut = 0
        self._waits = np.zeros(num_envs, dtype=bool)  # its episode was cut; it goes on when all restart
        self._max_steps = max_steps

    def all_wait_or_are_done(self) -> bool:
        return bool((self._waits | (self._owed() <= 0)).all())

    def all_done(self) -> bool:
        return bool((self._owed() <= 0).all())

    def restart(self) -> None:
        self._waits[:] = False

    def add(self, ended: list[tuple[int, Episode]], tracker: EpisodeTracker) -> None:
        for index, episode in ended:
            self._add(index, episode)
        if self._max_steps is None:
            return
        for index in (tracker.lengths >= self._max_steps).nonzero()[0].tolist():
            self.cut += self._add(index, tracker.running(index))
            self._waits[index] = True

    def _add(self, index: int, episode: Episode) -> bool:
        """Returns whether the episode counts."""
        counts = len(self.played[index]) < self.shares[index] and not self._waits[index]
        if counts:
            self.played[index].append(episode)
        return bool(counts)

    def _owed(self) -> NDArray[np.int64]:
        return self.shares - np.array([len(done) for done in self.played])


@torch.inference_mode()
def evaluate(
    policy: Policy,
    envs: Envs,
    *,
    episodes: int,
    seed: int,
    deterministic: bool = True,
    watch: Watch | None = None,
    max_steps: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Environment `i` plays its share of the episodes; what it does beyond that does not count.

    An episode is cut after `max_steps`. An environment cannot be restarted alone, so that the next episode of one that
    was cut begins when every other has played its share or was cut as well: then all restart, with another seed.
    """
    shares = _Shares(episodes, envs.num_envs, max_steps)
    generator = torch.Generator(policy.device).manual_seed(seed)
    steps = 0
    while not shares.all_done():
        tracker = EpisodeTracker(envs)
        obs, state = envs.reset(seed), policy.initial_state(envs.num_envs)
        _check_finite(obs, None, steps)
        shares.restart()
        while not shares.all_wait_or_are_done():
            if is_stopped():
                raise Interruption
            seen = to_observations(obs, policy.device)
            acted = policy.act(seen, state, generator=generator, deterministic=deterministic)
            actions = policy.env_actions(acted.actions.cpu().numpy())
            copy = tree_map(np.copy, obs) if watch else None
            step = envs.step(actions)
            steps += 1
            if watch:
                watch(copy, actions, step)
            _check_finite(step.obs, step, steps)
            obs, state = step.obs, restarted(acted.state, step.starts, policy)
            shares.add(tracker.add(step), tracker)
        seed += envs.num_envs
    played = tuple(episode for done in shares.played for episode in done)
    return Evaluation(played, episodes_cut=shares.cut)


def _check_finite(obs: Any, step: EnvStep | None, steps: int) -> None:
    """Numbers that are not finite have no score; the environment is named."""
    rewards = step.rewards if step else np.zeros(len(tree_leaves(obs)[0]), dtype=np.float32)
    finals = step.final_obs if step and step.final_obs is not None else {}
    if sums_are_finite(obs, rewards, finals):
        return
    found = [first_bad_row(tree_map(lambda leaf: leaf[None], obs), rewards[None])]
    if step and step.final_obs is not None:
        final = first_bad_row(
            tree_map(lambda leaf: leaf[None], finals), np.zeros((1, len(step.final_rows)), np.float32)
        )
        found.append(final and (0, int(step.final_rows[final[1]]), final[2]))
    for _, index, what in sorted(bad for bad in found if bad):
        raise EnvironmentFault(f"environment {index}, step {steps} of the evaluation: {what} is not finite")
