"""Hindsight: replayed transitions whose goal is one that their episode reached later (HER, arXiv:1707.01495)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.replay import Rows, StreamReplay
from rl_training.data.trees import Tree

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"

OfGoals = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]  # achieved and desired, `[…, G]` → `[…]`


class Hindsight:
    """Relabels when it draws, so that the replay holds what happened and every draw has other goals."""

    def __init__(self, replay: StreamReplay, rewards: OfGoals, terminated: OfGoals | None) -> None:
        """`terminated` says whether a goal ends the episode; without it, relabelled episodes end where they did."""
        self._replay = replay
        self._of_goals = {"rewards": rewards} | ({} if terminated is None else {"terminated": terminated})

    def transitions(
        self, rows: Rows, *, n_steps: int, gamma: float, ratio: float, rng: np.random.Generator
    ) -> dict[str, Tree]:
        """Transitions as of the replay, a share `ratio` of them with another goal and what that goal pays."""
        chosen = np.flatnonzero(rng.random(len(rows[0])) < ratio)
        if not len(chosen):
            return self._replay.transitions(rows, n_steps=n_steps, gamma=gamma)
        goals = self._replay.column("obs", self.later((rows[0][chosen], rows[1][chosen]), rng))[ACHIEVED]
        outcomes = self._outcomes(rows, chosen, goals, n_steps)
        batch = self._replay.transitions(rows, n_steps=n_steps, gamma=gamma, instead=outcomes)
        for name in ("obs", "next_obs"):
            batch[name][DESIRED][chosen] = goals
        return batch

    def later(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """For each row one of those after it in its episode, all equally likely (the strategy `future`)."""
        streams, places = rows
        return streams, rng.integers(places, self._replay.episode_ends(rows), endpoint=False) + 1

    def _outcomes(self, rows: Rows, chosen: NDArray[np.int64], goals: NDArray[Any], n_steps: int) -> dict[str, Tree]:
        """The columns `[n + 1, B]` that another goal changes."""
        ahead, _ = self._replay.following(rows, n_steps + 1)
        after = (ahead[0][1:, chosen], ahead[1][1:, chosen])
        achieved = self._replay.column("obs", after)[ACHIEVED]
        outcomes = {name: self._replay.column(name, ahead) for name in self._of_goals}
        for name, of_goals in self._of_goals.items():
            outcomes[name][:-1, chosen] = of_goals(achieved, np.broadcast_to(goals, achieved.shape))
        return outcomes
