"""`SolvedTasks`: which tasks have reached their target returns in training."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl_training.data.rollout import Episode
from rl_training.errors import ConfigError

RECENT_EPISODES = 20  # whose mean return is compared with a target


def targets_of(tasks: Sequence[str], given: float | Mapping[str, float]) -> dict[str, float]:
    """The target return of each task that has one; a single task has no name and takes a number."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(tasks, given)
    if unknown := sorted(given.keys() - set(tasks)):
        known = f"the tasks are {', '.join(tasks)}" if any(tasks) else "a run of one task takes a number"
        raise ConfigError(f"target_returns: there is no task {unknown[0]!r}; {known}")
    return dict(given)


class SolvedTasks:
    """A task is solved while the mean return of its recent episodes reaches its target.

    `first_solved` keeps the stage in which each task first was: later stages do not count it again.
    """

    def __init__(self, targets: Mapping[str, float]) -> None:
        self.targets = targets
        self.returns = {task: deque[float](maxlen=RECENT_EPISODES) for task in targets}
        self.first_solved: dict[str, int] = {}

    def add(self, episodes: Iterable[Episode], *, stage: int) -> None:
        """Hears of episodes that ended in a stage."""
        for episode in episodes:
            if episode.task in self.returns:
                self.returns[episode.task].append(episode.total_reward)
        for task in self.targets:
            if self.is_solved(task):
                self.first_solved.setdefault(task, stage)

    def is_solved(self, task: str) -> bool:
        returns = self.returns.get(task, ())
        return len(returns) == RECENT_EPISODES and sum(returns) / RECENT_EPISODES >= self.targets[task]

    def count(self) -> int:
        return sum(map(self.is_solved, self.targets))

    def ends_stage(self, stage: int, *, remaining: int) -> bool:
        """Whether enough tasks were first solved in the stage: ⌈unsolved when it began / stages that remain⌉."""
        stages = list(self.first_solved.values())
        unsolved = len(self.targets) - sum(earlier < stage for earlier in stages)
        return remaining > 0 and stages.count(stage) >= max(math.ceil(unsolved / remaining), 1)

    def state_dict(self) -> dict[str, Any]:
        returns = {task: list(recent) for task, recent in self.returns.items()}
        return {"returns": returns, "first_solved": dict(self.first_solved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for task, recent in self.returns.items():
            recent.clear()
            recent.extend(map(float, state["returns"][task]))
        self.first_solved = {str(task): int(stage) for task, stage in state["first_solved"].items()}
