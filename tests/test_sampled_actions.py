"""Searches over samples of the policy: Box, MultiDiscrete and large Discrete actions in the planners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import EfficientZero, GumbelMuZero, MuZero, ScaleZero
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config, merge
from rl_training.models.sampled import LOWEST_LOG_STD, SampledActions, SampledSearch
from rl_training.runtime.memory import memory_needs
from rl_training.search.policy import SEARCH_ACTIONS, SEARCH_POLICY
from support import TargetEnv
from test_planner_losses import shake

BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)
SMALL: dict[str, Any] = {
    "hidden_sizes": [32],
    "latent_size": 16,
    "hidden_size": 32,
    "num_simulations": 8,
    "sampled_actions": 8,
    "batch_size": 64,
    "support_size": 3,
    "learning_starts": 64,
}


class Choices(gym.Env):
    """One step: each of two choices pays ½ where it is the one that the observation shows."""

    def __init__(self, action: gym.Space) -> None:
        self.action_space, self.observation_space = action, spaces.Box(0, 1, (4,), np.float32)
        self.shown = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.shown], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = np.atleast_1d(action) == self.shown
        return np.eye(4, dtype=np.float32)[self.shown], float(right.mean()), True, False, {}


# ---- parts


def test_samples_follow_the_policy_and_their_probabilities_are_its_own() -> None:
    torch.manual_seed(0)
    sampled = SampledActions(BOX, 5, 4000)
    dist = torch.tensor([[0.5, -0.3, -1.0, 0.0]])
    drawn = sampled.draw(dist, torch.Generator().manual_seed(0))
    assert drawn.shape == (1, 4000, 2)
    torch.testing.assert_close(drawn.mean(1)[0], torch.tensor([0.5, -0.3]), atol=0.05, rtol=0)
    torch.testing.assert_close(drawn.std(1)[0], torch.tensor([-1.0, 0.0]).exp(), atol=0.05, rtol=0)
    expected = torch.distributions.Normal(dist[0, :2], dist[0, 2:].exp()).log_prob(drawn).sum(-1)
    torch.testing.assert_close(sampled.log_probs(dist, drawn), expected)


def test_a_root_weighs_its_samples_as_if_the_policy_had_drawn_them_all() -> None:
    """Σ π/β f over samples of β estimates Σ π f: of f = [it is action 0], the policy's own probability."""
    sampled = SampledActions(spaces.Discrete(4), 3, 8000)
    dist = torch.tensor([[0.05, 0.15, 0.2, 0.6]]).log()
    candidates, logits = sampled.explore(dist, torch.Generator().manual_seed(0))
    shares = [float((candidates[0] == k).float().mean()) for k in range(4)]
    np.testing.assert_allclose(shares, [0.1, 0.175, 0.2125, 0.5125], atol=0.02)  # ¾ π + ¼ · ¼
    weights = logits[0].exp() / 8000
    estimates = [float(weights[candidates[0] == k].sum()) for k in range(4)]
    np.testing.assert_allclose(estimates, [0.05, 0.15, 0.2, 0.6], atol=0.02)


def test_the_policys_deviation_has_a_floor() -> None:
    sampled = SampledActions(BOX, 3, 4)
    with torch.no_grad():
        sampled.head.linear.bias.fill_(-50.0)  # type: ignore[union-attr]
    assert sampled(torch.zeros(1, 3))[0, 2:].tolist() == [LOWEST_LOG_STD] * 2


@pytest.mark.parametrize(("bound", "means"), [(2.0, [-1.0, -1.0]), (np.inf, [-50.0, -50.0])])
def test_the_policys_mean_stays_where_samples_differ(bound: float, means: list[float]) -> None:
    sampled = SampledActions(spaces.Box(-bound, bound, (2,), np.float32), 3, 4)
    with torch.no_grad():
        sampled.head.linear.bias.fill_(-50.0)  # type: ignore[union-attr]
    assert sampled(torch.zeros(1, 3))[0, :2].tolist() == means


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (BOX, [[0.5, -3.0]], [[0.5, -1.0]]),  # as it is executed: clipped
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), [[7.0]], [[7.0]]),
        (spaces.MultiDiscrete([2, 3]), [[1, 0]], [[0, 1, 1, 0, 0]]),
        (spaces.Discrete(3), [2], [[0, 0, 1]]),
    ],
)
def test_the_dynamics_see_what_is_executed(space: gym.Space, action: Any, expected: Any) -> None:
    sampled = SampledActions(space, 3, 4)
    assert sampled.encoded(torch.tensor(action)).tolist() == expected


def test_a_search_imagines_the_sample_that_it_chose() -> None:
    """The model's reward is the action itself, so the search's q of a sample is the sample."""

    class Echo(torch.nn.Module):
        def recurrent(self, latents: torch.Tensor, actions: torch.Tensor) -> Any:
            return latents, actions[:, 0], torch.zeros(len(latents)), torch.zeros(len(latents), 2)

    sampled = SampledActions(spaces.Box(-1, 1, (1,), np.float32), 3, 5)
    among = SampledSearch(Echo(), sampled, torch.Generator().manual_seed(0))
    candidates = torch.linspace(-1, 1, 5)[None, :, None]
    rows = among.packed(torch.zeros(1, 7), candidates)
    rewards = [float(among.recurrent(rows, torch.tensor([k]))[1]) for k in range(5)]
    assert rewards == candidates.flatten().tolist()


# ---- planners


@pytest.mark.parametrize("kind", [MuZero, GumbelMuZero, EfficientZero])
def test_the_policy_learns_the_samples_that_searches_preferred(kind: Any) -> None:
    agent = kind(TargetEnv, num_envs=4, eval_episodes=0, **SMALL)
    shake(agent.policy)
    learner = agent._session.learner
    learner.store(agent._session.collector.collect(8))
    rows, chances = learner.draw(6)
    batch = learner.batch(rows, chances)
    assert batch["candidates"].shape == (6, 6, 8, 1)
    model = agent.policy.model
    dist = model.unroll(batch["obs"], batch["actions"]).policy
    mean, log_std = dist.chunk(2, dim=-1)
    expected = torch.zeros(6, 6)
    for k in range(6):
        for b in range(6):
            for i in range(8):
                normal = torch.distributions.Normal(mean[k, b], log_std[k, b].exp())
                expected[k, b] -= batch["policies"][k, b, i] * normal.log_prob(batch["candidates"][k, b, i]).sum()
    torch.testing.assert_close(model.policy_error(dist, batch), expected)
    agent.close()


def test_what_was_searched_again_has_new_samples_with_its_policy() -> None:
    agent = GumbelMuZero(TargetEnv, num_envs=1, eval_episodes=0, **SMALL)
    learner = agent._session.learner
    learner.store(agent._session.collector.collect(16))
    rows = (np.zeros(16, dtype=np.int64), np.arange(16))
    before = {name: learner.replay.column(name, rows).copy() for name in (SEARCH_POLICY, SEARCH_ACTIONS)}
    learner.reanalyse(8)
    changed = {
        name: (learner.replay.column(name, rows) != known).reshape(16, -1).any(1) for name, known in before.items()
    }
    assert 0 < changed[SEARCH_ACTIONS].sum() <= 8
    assert not (changed[SEARCH_POLICY] & ~changed[SEARCH_ACTIONS]).any()
    agent.close()


@pytest.mark.parametrize("kind", [MuZero, GumbelMuZero])
def test_a_planner_finds_the_right_number_in_a_box(kind: Any) -> None:
    agent = kind(TargetEnv, num_envs=8, eval_episodes=0, **SMALL, replay_ratio=0.5, learning_rate=3e-3)
    agent.train(1_500)
    assert agent.evaluate(episodes=20)["return_mean"] > -0.3  # chance returns −1.5
    agent.close()


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(spaces.MultiDiscrete([4, 4]), id="multi"),
        pytest.param(spaces.Discrete(12), id="discrete", marks=pytest.mark.slow),
    ],
)
def test_a_planner_finds_the_right_choices_among_many(action: gym.Space) -> None:
    pace = {"replay_ratio": 0.5, "learning_rate": 3e-3, "reanalyse_fraction": 0.0, "value_coef": 0.25}
    agent = GumbelMuZero(lambda: Choices(action), num_envs=8, eval_episodes=0, **SMALL, **pace)
    agent.train(2_000)
    assert agent.evaluate(episodes=20)["return_mean"] > 0.6  # chance returns 0.25 and 0.08
    agent.close()


def test_greedy_actions_are_the_same_each_time_and_within_the_bounds(tmp_path: Path) -> None:
    agent = GumbelMuZero("Pendulum-v1", num_envs=1, eval_episodes=0, **{**SMALL, "sampled_actions": None})
    shake(agent.policy)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    first, second = (agent.predict(obs)[0] for _ in range(2))
    assert np.array_equal(first, second)
    assert np.abs(first).max() <= 2.0
    assert agent.policy.model.num_actions == 16
    with pytest.raises(ConfigError, match="a planner that samples its actions"):
        agent.export(tmp_path / "policy.pt2")
    agent.close()


def test_without_chance_a_box_gets_the_mean_of_what_its_samples_do() -> None:
    sampled = SampledActions(BOX, 4, count=3)
    candidates = np.array([[[-1.0, 0.5], [3.0, 0.0], [0.0, 0.0]]], dtype=np.float32)
    # The second one is executed as 1: 0.5 · −1 + 0.25 · 1 + 0.25 · 0 and 0.5 · 0.5.
    greedy = sampled.greedy(candidates, np.array([[0.5, 0.25, 0.25]]), candidates[:, 0])
    np.testing.assert_allclose(greedy, [[-0.25, 0.25]])
    choices = SampledActions(spaces.MultiDiscrete([3, 2]), 4, count=3)
    numbers = np.array([[[0, 1], [2, 0], [1, 1]]])
    np.testing.assert_array_equal(choices.greedy(numbers, np.array([[0.5, 0.25, 0.25]]), numbers[:, 0]), [[0, 1]])


def test_without_chance_other_observations_get_other_samples() -> None:
    """The deviations from the mode would else leave out the same directions at every step."""
    agent = GumbelMuZero("Pendulum-v1", num_envs=1, eval_episodes=0, **SMALL)
    seen = []
    for value in (0.1, 0.2):
        obs = torch.full((1, 3), value)
        candidates = agent.policy.plan(obs, None).candidates
        assert candidates is not None
        assert np.array_equal(candidates, agent.policy.plan(obs, None).candidates)
        seen.append(candidates[0] - candidates[0, 0])
    assert not np.allclose(*seen, atol=0.1)
    agent.close()


def test_who_cannot_sample_says_so() -> None:
    with pytest.raises(ConfigError, match="needs a Discrete action space, got Box"):
        ScaleZero("Pendulum-v1")
    with pytest.raises(ConfigError, match="Discrete, MultiDiscrete or Box actions, got MultiBinary"):
        MuZero(lambda: Choices(spaces.MultiBinary(3)))


def test_a_run_counts_the_memory_of_its_samples() -> None:
    """A row keeps 32 samples of two numbers and a probability each, of 4 bytes."""
    config = {"algo": "muzero", "env_id": "Pendulum-v1", "algo_kwargs": {"replay_capacity": 1000}}
    given = Spaces(spaces.Box(-1, 1, (3,), np.float32), BOX)
    needs = [
        {need.part: need.bytes for need in memory_needs(make_config(merge(config, sampled)), given)}
        for sampled in ({"algo_kwargs": {"sampled_actions": 16}}, {"algo_kwargs": {"sampled_actions": 32}})
    ]
    assert needs[1]["replay"] - needs[0]["replay"] == 1000 * 16 * (2 * 4 + 4)
    assert needs[1]["search"] == 2 * needs[0]["search"]


def test_scalezero_refuses_a_number_of_samples() -> None:
    with pytest.raises(ConfigError, match="sampled_actions has no effect in ScaleZero, whose searches"):
        ScaleZero("CartPole-v1", sampled_actions=4)
