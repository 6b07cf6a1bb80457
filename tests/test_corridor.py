"""A long corridor whose reward is at the far end: planners must carry a value back over 30 and 45 steps.

Episodes begin in any cell. Right in the last one pays 1; left in the first pays 0.3 and ends the episode, elsewhere it
ends it with nothing. By γ 0.99 the first of 30 cells is worth 0.99²⁹ = 0.747, the first of 45 0.643: more than 0.3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from probing import probed
from rl_training.runtime.session import Session

PLANNERS = ("muzero", "gumbel_muzero", "efficientzero", "scalezero")
SETTINGS = {
    "gamma": 0.99,
    "value_coef": 1.0,
    "priority_alpha": 0.0,
    "reanalyse_fraction": 0.5,
    "correction_interval": 2_000,
    "support_size": 3,
}
OF_ONE: dict[str, dict[str, Any]] = {
    "efficientzero": {"search_rule": "gumbel", "num_simulations": 16},
    "scalezero": {"num_simulations": 8},
}
LEAST_VALUE = {"scalezero": 0.1}  # it goes the right way before it knows what that is worth


class Corridor(gym.Env):
    def __init__(self, cells: int = 30) -> None:
        self.cells, self.at = cells, 0
        self.observation_space = gym.spaces.Box(0.0, 1.0, (cells,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(self.cells))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if int(action) == 0:
            return self._observation(), 0.3 if self.at == 0 else 0.0, True, False, {}
        if self.at == self.cells - 1:
            return self._observation(), 1.0, True, False, {}
        self.at += 1
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> Any:
        return np.eye(self.cells, dtype=np.float32)[self.at]


def first_value_and_steps(session: Session, cells: int) -> tuple[float, int]:
    """What the first cell is worth by the search, and how many cells the greedy policy passes."""
    policy, steps = session.policy, 0
    with session.kernels():
        plans = policy.plan(torch.eye(cells), None)  # type: ignore[operator]
    while steps < cells and plans.actions[steps] == 1:
        steps += 1
    return float(plans.values[0]), steps


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "cells"), [*((algo, 30) for algo in PLANNERS), ("gumbel_muzero", 45)])
def test_a_planner_goes_to_the_far_end_for_the_greater_reward(algo: str, cells: int) -> None:
    session = probed(algo, partial(Corridor, cells), 10_000, **SETTINGS, **OF_ONE.get(algo, {}))
    value, steps = first_value_and_steps(session, cells)
    session.close()
    assert steps == cells
    assert value > LEAST_VALUE.get(algo, 0.3)  # what the near reward is worth
