"""GAIL's own parts: the discriminator's labels, the reward's sign, and a control that must fail."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.gail import GAIL, IMITATION_REWARDS, GAILParams, discriminator_loss
from rl_training.data.demonstrations import Demonstrations
from rl_training.data.rollout import Rollout
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.discriminator import Discriminator
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.gail_trainer import GAILLearner
from support import TargetEnv, policy_options, torso_options

SPACES = Spaces(gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2))


def make_gail(reward: str = "logit", *, smooth: bool = True) -> GAIL:
    torch.manual_seed(0)
    params = GAILParams(
        discriminator_learning_rate=3e-3,
        discriminator_entropy_coef=0.0,
        imitation_reward=reward,
        clip_coef=0.2,
        learning_rate=1e-3,
    )
    policy = ActorCritic(SPACES, policy_options())
    return GAIL(policy, Discriminator(SPACES, torso_options(hidden_sizes=(32, 32)), smooth=smooth), params)


def rows(action: int, n: int = 64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(action)
    return {"obs": torch.rand(n, 2, generator=generator), "actions": torch.full((n,), action)}


def test_the_loss_of_an_undecided_discriminator_is_ln_2() -> None:
    loss = discriminator_loss(torch.zeros(4), torch.zeros(6), entropy_coef=0.0)
    assert float(loss.total) == pytest.approx(math.log(2))
    # The entropy of a fair coin is ln 2 as well: the bonus takes its share off.
    assert float(discriminator_loss(torch.zeros(4), torch.zeros(6), entropy_coef=0.1).total) == pytest.approx(
        0.9 * math.log(2)
    )


def test_the_loss_by_hand() -> None:
    # Expert logit ln 3: D = 3/4, −ln(3/4). Policy logit −ln 3: D = 1/4, −ln(1 − 1/4). The mean of equal numbers.
    loss = discriminator_loss(torch.tensor([math.log(3)]), torch.tensor([-math.log(3)]), entropy_coef=0.0)
    assert float(loss.total) == pytest.approx(-math.log(0.75))
    assert (float(loss.expert_accuracy), float(loss.policy_accuracy)) == (1.0, 1.0)


@pytest.mark.parametrize("name", list(IMITATION_REWARDS))
def test_every_reward_rises_with_the_logit_that_is_high_for_the_expert(name: str) -> None:
    rewards = IMITATION_REWARDS[name](torch.linspace(-5, 5, 20))
    assert bool((rewards.diff() > 0).all())


def test_the_rewards_have_the_signs_that_their_names_promise() -> None:
    logits = torch.linspace(-3, 3, 7)
    assert bool((IMITATION_REWARDS["softplus"](logits) > 0).all())
    assert bool((IMITATION_REWARDS["logsigmoid"](logits) < 0).all())
    assert float(IMITATION_REWARDS["logit"](logits).sum()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("smooth", [True, False])
def test_accuracy_starts_near_a_half_and_rises_and_swapped_labels_flip_the_reward(smooth: bool) -> None:
    gail, swapped = make_gail(smooth=smooth), make_gail(smooth=smooth)
    accuracies = []
    for _ in range(150):
        metrics = gail.discriminator_update(rows(1), rows(0)).metrics
        accuracies.append(float(metrics["expert_accuracy"] + metrics["policy_accuracy"]) / 2)
        swapped.discriminator_update(rows(0), rows(1))
    assert 0.2 < accuracies[0] < 0.8
    assert accuracies[-1] > 0.95
    as_expert, as_policy = rows(1), rows(0)
    gained = gail.rewards(as_expert["obs"], as_expert["actions"]) - gail.rewards(as_policy["obs"], as_policy["actions"])
    lost = swapped.rewards(as_expert["obs"], as_expert["actions"]) - swapped.rewards(
        as_policy["obs"], as_policy["actions"]
    )
    assert float(gained.mean()) > 0 > float(lost.mean())


def test_judging_does_not_move_the_discriminator() -> None:
    gail = make_gail()
    before = {name: value.clone() for name, value in gail.discriminator.state_dict().items()}
    gail.rewards(rows(1)["obs"], rows(1)["actions"])
    assert all(torch.equal(before[name], value) for name, value in gail.discriminator.state_dict().items())


def test_cloning_makes_the_experts_action_likely() -> None:
    gail = make_gail()
    losses = [float(gail.clone_update(rows(1)).metrics["bc_loss"]) for _ in range(100)]
    assert losses[0] == pytest.approx(math.log(2), abs=0.05)
    assert losses[-1] < 0.1


def test_cloning_normalises_by_the_expert_and_drops_the_rollout_of_the_policy_before(tmp_path: Path) -> None:
    learner, rollout = imitation(tmp_path, clone_updates=5, normalize_obs=True)
    metrics = [result.metrics for result in learner.learn(rollout)]
    assert [set(row) for row in metrics] == [{"bc_loss"}] * 5
    assert learner.algorithm.policy.head.log_std.tolist() == [1.5]  # as in the beginning
    normalizer = learner.algorithm.policy.normalizer
    torch.testing.assert_close(normalizer(learner.expert.obs).std(0), torch.ones(1), atol=0.05, rtol=0)
    assert "policy_loss" in [result.metrics for result in learner.learn(rollout)][-1]


# ---- what the discriminator is given


def imitation(tmp_path: Path, **params: Any) -> tuple[GAILLearner, Rollout]:
    """A learner on actions in [−2, 2] whose expert answers twice what it sees, and a wild policy's rollout."""
    seen = torch.linspace(-1.0, 1.0, 50)[:, None]
    ends = torch.zeros(2, 50, dtype=torch.bool)
    expert = Demonstrations(seen, 2.0 * seen, torch.zeros(50), ends[0], ends[1].clone())
    expert.save(tmp_path / "expert.safetensors")
    params = {"demonstrations": str(tmp_path / "expert.safetensors"), "log_std_init": 1.5, **params}
    envs = make_envs(EnvSpec(TargetEnv, backend="sync"), 4)
    given = GAILParams(**params, discriminator_batch=64)
    learner = GAILLearner(given, envs.spaces, num_envs=4, seed=0, device=torch.device("cpu"))
    return learner, LocalCollector(envs, learner.algorithm.policy, seed=0).collect(16)


def given_to_the_discriminator(learner: GAILLearner, rollout: Rollout) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []

    def keep(expert: Any, policy: Any) -> UpdateResult:
        pairs.append((expert, policy))
        return UpdateResult({})

    learner.algorithm.discriminator_update = keep  # type: ignore[method-assign]
    list(learner.discriminate(rollout))
    return pairs


def test_the_discriminator_sees_the_actions_that_were_executed(tmp_path: Path) -> None:
    learner, rollout = imitation(tmp_path)
    assert rollout.actions.abs().max() > 1.5  # samples are in units of half the range, and not clipped
    executed = set(learner.executed(rollout).flatten().tolist())
    for _, policy in given_to_the_discriminator(learner, rollout):
        assert policy["actions"].abs().max() == 2.0
        assert set(policy["actions"].flatten().tolist()) <= executed
    judged: list[torch.Tensor] = []
    learner.algorithm.rewards = lambda obs, actions: judged.append(actions) or torch.zeros(len(actions))  # type: ignore
    learner.rewards(rollout)
    assert torch.equal(judged[0].reshape(rollout.actions.shape), learner.executed(rollout))


def test_rows_that_never_happened_are_not_shown_to_the_discriminator(tmp_path: Path) -> None:
    learner, rollout = imitation(tmp_path)
    valid = torch.arange(16)[:, None].expand(16, 4) % 2 == 0
    marked = torch.where(valid[..., None], rollout.obs, 7.0)
    for _, policy in given_to_the_discriminator(learner, replace(rollout, valid=valid, obs=marked)):
        assert policy["obs"].max() <= 1.0


def test_the_discriminators_inputs_have_the_scale_of_the_experts(tmp_path: Path) -> None:
    learner, _ = imitation(tmp_path)
    discriminator, expert = learner.algorithm.discriminator, learner.expert
    plain = copy.deepcopy(discriminator)
    list(learner.begin())
    obs, actions = expert.obs[:5], expert.actions[:5]
    scaled = [
        (x - full.mean(0)) / full.std(0, correction=0) for x, full in ((obs, expert.obs), (actions, expert.actions))
    ]
    discriminator.eval()
    plain.eval()
    with torch.no_grad():
        torch.testing.assert_close(discriminator(obs, actions), plain(*scaled), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(discriminator(obs, actions), plain(obs, actions), atol=1e-3)


def test_rows_that_never_happened_pay_nothing_into_the_normaliser(tmp_path: Path) -> None:
    learner, rollout = imitation(tmp_path)
    valid = torch.arange(16)[:, None].expand(16, 4) % 2 == 0
    paid = learner.rewards(replace(rollout, valid=valid))
    assert (paid[~valid] == 0).all()
    assert (paid[valid] != 0).all()
