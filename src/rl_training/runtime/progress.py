"""`Progress`: how far a run has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rl_training.data.rollout import Episode, info_means, task_means
from rl_training.runtime.evaluation import Evaluation

RECENT_EPISODES = 100


@dataclass
class Progress:
    """How far the run has come."""

    global_step: int = 0
    iterations: int = 0
    gradient_steps: int = 0
    episodes: int = 0
    longest_episode: int = 0
    best_return: float | None = None
    evaluations_since_best: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process; workers count for themselves
    adapted: dict[str, float] = field(default_factory=dict)  # controls that follow a KL, and what they have come to
    recent: dict[str, deque[Episode]] = field(default_factory=dict)  # of each task

    def add_episodes(self, episodes: tuple[Episode, ...]) -> None:
        self.episodes += len(episodes)
        self.longest_episode = max(self.longest_episode, *(episode.length for episode in episodes), 0)
        for episode in episodes:
            self.recent.setdefault(episode.task, deque(maxlen=RECENT_EPISODES)).append(episode)

    def add_evaluation(self, evaluation: Evaluation) -> bool:
        """Counts an evaluation and tells whether it is the best so far."""
        best = self.best_return is None or evaluation.return_mean > self.best_return
        self.evaluations_since_best = 0 if best else self.evaluations_since_best + 1
        if best:
            self.best_return = evaluation.return_mean
        return best

    def episode_metrics(self) -> dict[str, float]:
        """Over the last hundred finished episodes of each task; nothing before the first."""
        recent = [episode for of_task in self.recent.values() for episode in of_task]
        if not recent:
            return {}
        returns = np.array([episode.total_reward for episode in recent])
        return {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "episode_length_mean": float(np.mean([episode.length for episode in recent])),
            **task_means(recent),
            **info_means(recent),
        }

    def state_dict(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"recent": [list(episode) for of_task in self.recent.values() for episode in of_task]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        recent = tuple(_episode(*row) for row in state["recent"])
        self.recent = {}
        self.add_episodes(recent)
        for name in state.keys() & {f.name for f in fields(self)} - {"recent"}:
            setattr(self, name, state[name])
        if min(self.global_step, self.iterations, self.gradient_steps, self.episodes) < 0:
            raise ValueError("a run cannot have made fewer than 0 steps")


def _episode(total_reward: Any, length: Any, task: Any, infos: Any = ()) -> Episode:
    """An episode as a checkpoint has it, a list for each tuple."""
    return Episode(float(total_reward), int(length), str(task), tuple((str(key), float(mean)) for key, mean in infos))
