"""What Gumbel MuZero changes: the root's choice and the policy target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import GumbelMuZero
from rl_training.algorithms.gumbel_muzero import GumbelMuZeroParams
from rl_training.algorithms.params import LiveParams
from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel
from rl_training.ops.search import softmax
from rl_training.search.policy import GumbelPolicy
from rl_training.search.rules import gumbel
from rl_training.search.search import search
from support import IdentityEnv, muzero_options
from test_muzero_update import QUICK
from test_search import bandit


def small_policy(**changes: float) -> GumbelPolicy:
    torch.manual_seed(0)
    sizes = muzero_options(latent_size=8, hidden_size=16, support_size=3)
    model = MuZeroModel(Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(6)), sizes)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    acting = {"gamma": 0.9, "num_simulations": 8, "temperature": 1.0, "max_considered_actions": 4}
    params = LiveParams(GumbelMuZeroParams(**{**acting, **changes}, c_visit=50.0, c_scale=0.1))
    return GumbelPolicy(model, params, max_depth=None, first_action=0)


def shares(policy: GumbelPolicy, temperature: float) -> np.ndarray:
    policy.params.move({"temperature": temperature})
    plan = policy.plan(torch.zeros(2_000, 4), np.random.default_rng(0))
    return np.bincount(plan.actions, minlength=6) / 2_000


def test_the_temperature_changes_the_distribution_of_actions() -> None:
    """0: one action for one state, always; the more noise, the flatter."""
    policy = small_policy()
    greedy, paper, hot = (shares(policy, temperature) for temperature in (0.0, 1.0, 10.0))
    assert greedy.max() == 1.0
    assert paper.max() < 0.99
    assert hot.max() < paper.max()
    assert hot.min() > 0.05


def test_new_noise_with_every_search() -> None:
    policy = small_policy()
    rng = np.random.default_rng(0)
    first, second = (policy.plan(torch.zeros(64, 4), rng).actions for _ in range(2))
    assert (first != second).any()


def test_noise_is_kept_for_some_steps_and_new_with_an_episode() -> None:
    """A state carries the last search's noise; of 2,000 rows 0.7 keep theirs, and a fresh state has none to keep."""
    policy, obs = small_policy(noise_persistence=0.7), torch.zeros(2_000, 4)
    states = [policy.initial_state(2_000)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        acted = policy.act(obs, states[-1], generator=generator)
        states.append(acted.state)
    kept = (states[2] == states[1]).all(-1).float().mean().item()
    assert kept == pytest.approx(0.7, abs=0.05)
    assert len(states[1].unique(dim=0)) == 2_000
    rows = (states[2] == states[1]).all(-1)
    first = policy.act(obs, states[0], generator=torch.Generator().manual_seed(0)).actions
    assert torch.equal(acted.actions[rows], first[rows])  # the same noise at the same state is the same action
    greedy = policy.act(obs, states[1], deterministic=True)
    assert torch.equal(greedy.state, states[1])
    assert len(greedy.actions.unique()) == 1


def test_without_persistence_nothing_is_kept() -> None:
    assert small_policy().initial_state(3).shape == (3, 0)


def test_a_deterministic_action_is_that_of_temperature_zero() -> None:
    policy = small_policy()
    obs = torch.randn(32, 4)
    policy.params.move({"temperature": 0.0})
    cold = policy.plan(obs, np.random.default_rng(0))
    np.testing.assert_array_equal(policy.plan(obs, None).actions, cold.actions)


@pytest.mark.parametrize("simulations", [2, 4, 8])
def test_the_policy_target_pays_more_than_the_policy_however_few_the_simulations(simulations: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rewards, logits = rng.normal(size=6), rng.normal(size=6)
        table = bandit(rewards.tolist(), logits.tolist())
        prior = softmax(logits)
        table.values[0] = prior @ rewards
        roots = table.roots(0, gumbel=rng.gumbel(size=(1, 6)))
        found = search(roots, table, rule=gumbel(), num_simulations=simulations, discount=1.0)
        assert found.improved_logits is not None
        assert softmax(found.improved_logits[0]) @ rewards > prior @ rewards


def test_gumbel_muzero_learns_which_action_pays_with_four_simulations() -> None:
    agent = GumbelMuZero(IdentityEnv, **QUICK, num_simulations=4)
    agent.train(1_000)
    assert agent.evaluate(episodes=20, seed=0)["return_mean"] > 7.0  # chance 2, perfect 8
