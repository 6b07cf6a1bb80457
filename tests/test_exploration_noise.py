"""Correlated exploration of Box actions: its distribution, its beginnings, and runs that carry it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from conformance import StopAtCheckpoint, differences, small_config, train_state
from probing import probed
from rl_training import SAC, TD3
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.models.exploration import ExplorationNoise, as_uniform
from rl_training.runtime.collector import restarted
from rl_training.runtime.manager import resume_run
from support import ContextualBandit
from test_sac_update import built as sac
from test_td3_update import built as td3

RHO = 0.9
POLICIES = {"sac": sac, "td3": td3}


def walked(steps: int, rows: int, correlation: float = RHO) -> Tensor:
    """`[steps, rows]` numbers, each row an episode."""
    noise, generator, drawn = ExplorationNoise(1, correlation), torch.Generator().manual_seed(0), []
    state = torch.zeros(rows, noise.state_size)
    for _ in range(steps):
        numbers, state = noise.draw(state, generator)
        drawn.append(numbers[:, 0])
    return torch.stack(drawn)


def test_a_step_by_hand() -> None:
    # 0.6 · 2 + 0.8 · ξ where the episode has drawn 2 before, and ξ alone where it has drawn nothing
    state = torch.tensor([[2.0, 1.0], [0.0, 0.0]])
    xi = torch.empty(2, 1).normal_(generator=torch.Generator().manual_seed(3))
    numbers, after = ExplorationNoise(1, 0.6).draw(state, torch.Generator().manual_seed(3))
    torch.testing.assert_close(numbers, torch.stack([1.2 + 0.8 * xi[0], xi[1]]))
    torch.testing.assert_close(after, torch.cat([numbers, torch.ones(2, 1)], 1))


def test_every_step_alone_is_standard_normal_from_the_first_on() -> None:
    for numbers in walked(30, 20_000)[[0, 1, 5, 29]]:
        assert float(numbers.mean()) == pytest.approx(0.0, abs=0.03)
        assert float(numbers.std()) == pytest.approx(1.0, abs=0.03)
        assert float((numbers.abs() < 1.0).float().mean()) == pytest.approx(0.683, abs=0.02)


def test_the_correlation_of_two_steps_falls_with_their_distance() -> None:
    numbers = walked(12, 20_000)
    for distance in (1, 3, 10):
        found = torch.corrcoef(numbers[[1, 1 + distance]])[0, 1]
        assert float(found) == pytest.approx(RHO**distance, abs=0.03)


def test_uniform_numbers_keep_order_and_bounds() -> None:
    numbers = as_uniform(walked(1, 20_000)[0])
    assert float(numbers.abs().max()) < 1.0
    counts = torch.histc(numbers, 10, -1.0, 1.0) / len(numbers)
    torch.testing.assert_close(counts, torch.full((10,), 0.1), atol=0.01, rtol=0.0)


@pytest.mark.parametrize("algo", POLICIES)
def test_an_episode_begins_with_fresh_noise(algo: str) -> None:
    policy = POLICIES[algo](noise_correlation=0.999).policy
    obs, ended = torch.zeros(2, 3), np.array([False, True])
    state = policy.act(obs, policy.initial_state(2), generator=torch.Generator().manual_seed(0)).state
    acted = policy.act(obs, restarted(state, ended, policy), generator=torch.Generator().manual_seed(1))
    fresh = policy.act(obs, policy.initial_state(2), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(acted.actions[1], fresh.actions[1], rtol=0.0, atol=0.0)
    assert not torch.allclose(acted.actions[0], fresh.actions[0], atol=0.01)


@pytest.mark.parametrize("algo", POLICIES)
def test_warm_up_wanders_and_hands_its_noise_to_the_policy(algo: str) -> None:
    policy = POLICIES[algo](noise_correlation=0.999).policy
    obs, generator = torch.zeros(500, 3), torch.Generator().manual_seed(0)
    first = policy.act_randomly(obs, policy.initial_state(500), generator=generator)
    second = policy.act_randomly(obs, first.state, generator=generator)
    assert float((first.actions - second.actions).abs().max()) < 0.2
    assert float(first.actions.std()) == pytest.approx(3**-0.5, abs=0.03)  # that of a uniform number
    policy.act(obs, second.state, generator=generator)


@pytest.mark.parametrize("algo", POLICIES)
def test_white_noise_and_greedy_actions_carry_nothing(algo: str) -> None:
    white, correlated = POLICIES[algo]().policy, POLICIES[algo](noise_correlation=RHO).policy
    obs = torch.randn(4, 3)
    assert white.initial_state(4).shape == (4, 0)
    state = torch.ones_like(correlated.initial_state(4))
    greedy = correlated.act(obs, state, deterministic=True)
    torch.testing.assert_close(greedy.actions, white.act(obs, white.initial_state(4), deterministic=True).actions)
    assert greedy.state is state


@pytest.mark.parametrize("algo", POLICIES)
def test_the_first_step_of_an_episode_is_that_of_white_noise(algo: str) -> None:
    obs, answers = torch.randn(4, 3), []
    for correlation in (0.0, RHO):
        policy = POLICIES[algo](noise_correlation=correlation).policy
        generator = torch.Generator().manual_seed(0)
        answers.append(policy.act(obs, policy.initial_state(4), generator=generator).actions)
    torch.testing.assert_close(*answers, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("algo", POLICIES)
def test_a_resumed_run_goes_on_with_its_noise(algo: str, tmp_path: Path) -> None:
    """Checkpoints fall into the middle of episodes, the first of them at the end of the warm-up."""
    config = small_config(algo, tmp_path, algo_kwargs={"noise_correlation": RHO}, checkpoint_interval=128)
    _, uninterrupted = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert any(name.endswith("state") and np.shape(value) == (2, 2) for name, value in leaves_of(stopped))
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def leaves_of(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for key, part in tree.items() for leaf in leaves_of(part, f"{name}.{key}")]
    return [(name, tree)]


@pytest.mark.parametrize("kind", [SAC, TD3], ids=["sac", "td3"])
def test_a_greedy_graph_has_no_memory_and_a_sampled_one_has_the_noise(kind: Any, tmp_path: Path) -> None:
    agent = kind("Pendulum-v1", num_envs=2, noise_correlation=RHO)
    greedy = agent.export(tmp_path / "greedy.safetensors", observations=20)
    sampled = agent.export(tmp_path / "sampled.safetensors", deterministic=False, observations=20)
    assert greedy.inputs["policy"] == ["obs"]
    assert sampled.inputs["policy"] == ["obs", "state", "noise"]
    assert greedy.equal == sampled.equal == 20
    agent.close()


def test_noise_that_wanders_reaches_what_white_noise_does_not() -> None:
    """A hill car climbs by pushing one way for long, which white noise does not do in 5,000 steps."""
    best = {}
    for correlation in (0.0, 0.98):
        policy = sac(noise_correlation=correlation).policy
        generator, env = torch.Generator().manual_seed(0), gym.make("MountainCarContinuous-v0")
        obs, _ = env.reset(seed=0)
        state, reached = policy.initial_state(1), []
        for _ in range(5_000):
            acted = policy.act_randomly(torch.zeros(1, 3), state, generator=generator)
            state = acted.state
            obs, _, terminated, truncated, _ = env.step(acted.actions[0, :1].numpy())
            reached.append(float(obs[0]))
            if terminated or truncated:
                env.reset()
                state = policy.initial_state(1)
        best[correlation] = max(reached)
    assert best[0.0] < 0.45 <= best[0.98]


def test_discrete_actions_have_no_noise_to_correlate() -> None:
    with pytest.raises(ConfigError, match="noise_correlation has no effect on Discrete actions"):
        probed("sac", ContextualBandit, 100, noise_correlation=0.5)
