"""The squashed Gaussian and the deviation that depends on the state: against torch, and in whole runs."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence

from conformance import StopAtCheckpoint, differences, small_config, train_state
from rl_training import PPO
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.kernels.policies import array_policy
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.heads import GaussianHead, SquashedHead, StateGaussianHead, make_head
from rl_training.runtime.manager import resume_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import load_session, predict
from support import TargetEnv, policy_options

BOX = spaces.Box(-2, 5, (2,), np.float32)
PENDULUM = {"env_id": "Pendulum-v1", "backend": "auto", "wrappers": []}
OPTIONS = {"squash_actions": True, "state_dependent_std": True}


def squashed(mean: Tensor, log_std: Tensor) -> TransformedDistribution:
    """The same distribution, as torch writes it."""
    return TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])


def test_squashed_log_probs_are_those_of_torch() -> None:
    head, generator = make_head(BOX, 8, squash_actions=True), torch.Generator().manual_seed(0)
    dist = torch.randn(64, 4, generator=generator, dtype=torch.float64) * 0.5
    actions = head.sample(dist, generator)
    theirs = squashed(*dist.chunk(2, -1)).log_prob(actions.tanh())
    torch.testing.assert_close(head.log_probs(dist, actions), theirs, atol=1e-6, rtol=1e-6)


def test_a_squashed_density_integrates_to_one() -> None:
    head = make_head(spaces.Box(-1, 1, (1,), np.float32), 8, squash_actions=True)
    for mean, log_std in ((0.0, 0.0), (1.5, -1.0), (-3.0, 0.5)):
        edges = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
        middles = ((edges[1:] + edges[:-1]) / 2)[:, None]
        dist = torch.tensor([[mean, log_std]], dtype=torch.float64).expand(len(middles), -1)
        density = head.log_probs(dist, middles.atanh()).exp()
        assert float(density.sum() * 2 / 200_000) == pytest.approx(1.0, abs=5e-3)


def test_a_squashed_log_prob_is_finite_where_the_tanh_is_one() -> None:
    head = make_head(spaces.Box(-1, 1, (1,), np.float32), 8, squash_actions=True)
    # log N(20; 0, 1) − log(1 − tanh²20) = −200 − ½ log 2π − (2 log 2 − 40)
    expected = -200.0 - 0.5 * math.log(2 * math.pi) - 2 * math.log(2) + 40.0
    assert math.tanh(20.0) == 1.0
    assert head.log_probs(torch.zeros(1, 2), torch.tensor([[20.0]])).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, -3.0), (0.5, -0.5), (-2.0, 0.0), (1.0, 1.0)])
def test_the_squashed_entropy_is_that_of_many_samples(mean: float, log_std: float) -> None:
    head = make_head(BOX, 8, squash_actions=True)
    dist = torch.tensor([[mean, mean, log_std, log_std]])
    rows = dist.expand(400_000, -1)
    sampled = -head.log_probs(rows, head.sample(rows, torch.Generator().manual_seed(0)))
    error = 4 * sampled.std().item() / 400_000**0.5
    assert head.entropy(dist).item() == pytest.approx(sampled.mean().item(), abs=error + 2e-3)


def test_the_squashed_entropy_has_a_gradient() -> None:
    """A wide Gaussian squashed piles up at the bounds: narrowing it raises the entropy."""
    head = make_head(BOX, 8, squash_actions=True)
    dist = torch.tensor([[0.0, 0.0, 1.5, 1.5]]).requires_grad_()
    head.entropy(dist).sum().backward()
    assert (dist.grad[0, 2:] < 0).all()


def test_the_squashed_kl_is_that_of_the_gaussians() -> None:
    head = make_head(BOX, 8, squash_actions=True)
    old, new = torch.randn(2, 16, 4)
    normals = [Independent(Normal(d.chunk(2, -1)[0], d.chunk(2, -1)[1].exp()), 1) for d in (old, new)]
    torch.testing.assert_close(head.kl(old, new), kl_divergence(*normals))


def test_squashed_actions_fill_the_bounds_and_come_back() -> None:
    head = make_head(BOX, 8, squash_actions=True)
    executed = head.to_env(np.array([[-30.0, 30.0], [0.0, 0.5]], dtype=np.float32))
    # [-2, 5] has its middle at 1.5 and its half width is 3.5
    np.testing.assert_allclose(executed, [[-2, 5], [1.5, 1.5 + 3.5 * math.tanh(0.5)]], rtol=1e-6)
    np.testing.assert_allclose(head.to_env(head.from_env(executed)), executed, atol=1e-4)
    assert np.isfinite(head.from_env(executed)).all()


def test_random_squashed_actions_are_uniform_between_the_bounds() -> None:
    head = make_head(BOX, 8, squash_actions=True)
    executed = head.to_env(head.random(40_000, torch.Generator().manual_seed(0), torch.device("cpu")).numpy())
    counts, _ = np.histogram(executed[:, 0], bins=7, range=(-2, 5))
    np.testing.assert_allclose(counts / 40_000, 1 / 7, atol=0.006)


def test_the_deviation_begins_where_it_is_said_to_and_depends_on_the_state() -> None:
    head = make_head(BOX, 8, log_std_init=-1.5, state_dependent_std=True)
    log_std = head(torch.randn(64, 8))[:, 2:]
    assert type(head) is StateGaussianHead
    assert (log_std + 1.5).abs().max() < 0.2
    assert log_std.std() > 0
    assert not [name for name, _ in head.named_parameters() if "log_std" in name]


@pytest.mark.parametrize("options", [{}, {"squash_actions": True}, {"state_dependent_std": True}, OPTIONS])
def test_a_widened_head_has_the_deviation_asked_for_and_its_old_means(options: dict[str, bool]) -> None:
    head, features = make_head(BOX, 8, **options), torch.randn(5, 8)
    before = head(features)
    head.widen(-1.5)
    mean, log_std = head(features).chunk(2, dim=-1)
    torch.testing.assert_close(mean, before.chunk(2, dim=-1)[0])
    assert (log_std == -1.5).all()


def test_a_deviation_has_bounds() -> None:
    head = make_head(BOX, 1, log_std_init=50.0, state_dependent_std=True)
    assert head(torch.zeros(1, 1))[0, 2:].tolist() == [2.0, 2.0]


def test_the_options_make_four_heads() -> None:
    kinds = {
        (squash, state): make_head(BOX, 4, squash_actions=squash, state_dependent_std=state)
        for squash in (False, True)
        for state in (False, True)
    }
    assert [type(kinds[False, state]) for state in (False, True)] == [GaussianHead, StateGaussianHead]
    assert [type(kinds[True, state].gaussian) for state in (False, True)] == [GaussianHead, StateGaussianHead]
    assert type(kinds[True, True]) is SquashedHead


@pytest.mark.parametrize("option", ["squash_actions", "state_dependent_std"])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)])
def test_options_of_box_actions_are_refused_for_others(option: str, space: spaces.Space) -> None:
    with pytest.raises(ConfigError, match=f"{option} is for Box actions.*leave it out"):
        make_head(space, 4, **{option: True})


def test_actions_without_bounds_cannot_be_squashed() -> None:
    with pytest.raises(ConfigError, match="finite bounds on both sides"):
        make_head(spaces.Box(0, np.inf, (2,), np.float32), 4, squash_actions=True)


FAMILY = ["ppo", "a2c", "trpo", "recurrent_ppo", "impala", "appo", "ppg"]


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.parametrize("algo", FAMILY)
def test_a_run_with_both_options_resumes_exactly(algo: str, kernels: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {**PENDULUM, "checkpoint_interval": 128, "eval_episodes": 0, "algo_kwargs": OPTIONS}
    config = small_config(algo, tmp_path, **changes, kernels=kernels)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


@pytest.mark.parametrize("option", OPTIONS)
def test_a_policy_with_an_option_takes_the_plain_path(option: str) -> None:
    spaces_of_task = Spaces(spaces.Box(-1, 1, (3,), np.float32), BOX)
    assert array_policy(ActorCritic(spaces_of_task, policy_options())) is not None
    assert array_policy(ActorCritic(spaces_of_task, policy_options(**{option: True}))) is None


def test_a_squashed_policy_predicts_within_the_bounds(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path, **PENDULUM, eval_episodes=1, algo_kwargs=OPTIONS))
    session = load_session(run_dir)
    with torch.no_grad():
        session.policy.head.gaussian.linear.bias += 100.0
    actions, _ = predict(session, np.zeros((3, 3), dtype=np.float32))
    assert actions.tolist() == [[2.0]] * 3


def test_gail_clones_an_expert_whose_actions_are_at_the_bounds(tmp_path: Path) -> None:
    changes = {**PENDULUM, "eval_episodes": 0, "total_timesteps": 64}
    own = {"demonstrations": "pendulum", "clone_updates": 3, **OPTIONS}
    _, state = train_state(small_config("gail", tmp_path, **changes, algo_kwargs=own))
    assert all(
        bool(torch.as_tensor(value).isfinite().all()) for value in state["learner"]["algorithm"]["policy"].values()
    )


def test_squash_actions_on_a_discrete_task_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="squash_actions is for Box actions"):
        Session(small_config("ppo", tmp_path, algo_kwargs={"squash_actions": True}))


def test_ppo_learns_a_target_with_either_option(tmp_path: Path) -> None:
    """A guess of 0 costs the variance of the target, 1/3."""
    for option, learning_rate in (("squash_actions", 3e-3), ("state_dependent_std", 1e-3)):
        settings = {"rollout_steps": 64, "learning_rate": learning_rate, "log_std_init": -0.5, option: True}
        with closing(PPO(TargetEnv, num_envs=8, seed=0, algo_kwargs=settings, output_dir=str(tmp_path))) as agent:
            agent.train(8_000, display="none")
            assert agent.evaluate(episodes=200)["return_mean"] > -0.05
