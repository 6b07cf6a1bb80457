"""Actions at random that persist: for how long, what ends them, and runs that carry them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conformance import StopAtCheckpoint, differences, small_config, train_state
from rl_training.algorithms.dqn import DQNParams
from rl_training.algorithms.params import LiveParams
from rl_training.envs.masks import ACTION_MASK
from rl_training.envs.types import Spaces
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.models.q_network import QPolicy
from rl_training.runtime.collector import restarted
from rl_training.runtime.dqn_trainer import DQNLearner
from rl_training.runtime.manager import resume_run

NUMBER = spaces.Box(-1, 1, (1,), np.float32)
MASKED = spaces.Dict({"observation": NUMBER, ACTION_MASK: spaces.MultiBinary(50)})


def policy_of(space: spaces.Space = NUMBER, **params: Any) -> QPolicy:
    """Its best action is 0 of 50, so that other actions were drawn."""
    policy = DQNLearner.build_algorithm(LiveParams(DQNParams(**params)), Spaces(space, spaces.Discrete(50))).policy
    policy.network.advantages.weight.data.zero_()
    policy.network.advantages.bias.data[0] = 1.0
    return policy


def walked(steps: int, rows: int, **params: Any) -> np.ndarray:
    """`[steps, rows]` actions of one episode each."""
    policy, generator, actions = policy_of(**params), torch.Generator().manual_seed(0), []
    state = policy.initial_state(rows)
    for _ in range(steps):
        acted = policy.act(torch.zeros(rows, 1), state, generator=generator)
        actions.append(acted.actions.numpy())
        state = acted.state
    return np.stack(actions)


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9])
def test_an_action_at_random_lasts_as_long_as_its_chance_says(persistence: float) -> None:
    actions = walked(400, 500, epsilon=0.02, epsilon_persistence=persistence)
    changes = np.diff(actions, axis=0) != 0
    begun = (changes & (actions[1:] != 0))[:-100].sum()
    assert (actions[1:-100] != 0).sum() / begun == pytest.approx(1 / (1 - persistence), rel=0.08)
    # A step that no earlier one decides is at random with the chance that epsilon says: 49 of 50 are not the best.
    chosen = (actions[:-1] == 0).sum()
    assert ((actions[:-1] == 0) & (actions[1:] != 0)).sum() / chosen == pytest.approx(0.02 * 49 / 50, rel=0.08)


def test_it_is_greedy_where_it_is_asked_to_be() -> None:
    policy = policy_of(epsilon=1.0, epsilon_persistence=0.9)
    acted = policy.act(torch.zeros(3, 1), torch.full((3, 1), 7.0), deterministic=True)
    assert acted.actions.tolist() == [0, 0, 0]


def test_an_episode_begins_without_the_action_of_the_one_before() -> None:
    policy = policy_of(epsilon=0.0, epsilon_persistence=0.999)
    state = restarted(torch.full((2, 1), 8.0), np.array([False, True]), policy)
    acted = policy.act(torch.zeros(2, 1), state, generator=torch.Generator().manual_seed(0))
    assert acted.actions.tolist() == [7, 0]
    assert acted.state.tolist() == [[8.0], [0.0]]


def test_an_action_that_is_no_longer_legal_does_not_persist() -> None:
    policy = policy_of(MASKED, epsilon=0.0, epsilon_persistence=0.999)
    legal = torch.ones(2, 50, dtype=torch.int8)
    legal[1, 7] = 0
    obs = {"observation": torch.zeros(2, 1), ACTION_MASK: legal}
    acted = policy.act(obs, torch.full((2, 1), 8.0), generator=torch.Generator().manual_seed(0))
    assert acted.actions.tolist() == [7, 0]


def test_the_first_steps_at_random_persist_as_well() -> None:
    policy = policy_of(epsilon_persistence=0.999)
    acted = policy.act_randomly(torch.zeros(2, 1), torch.tensor([[8.0], [0.0]]), generator=torch.Generator())
    assert int(acted.actions[0]) == 7
    assert acted.state[:, 0].tolist() == (acted.actions + 1.0).tolist()


def test_resume_is_exact(tmp_path: Path) -> None:
    config = small_config("dqn", tmp_path, checkpoint_interval=100, algo_kwargs={"epsilon_persistence": 0.9})
    _, whole = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert stopped["progress"]["global_step"] < whole["progress"]["global_step"]
    resume_run(run_dir)
    assert differences(whole, load_checkpoint(run_dir)) == []
