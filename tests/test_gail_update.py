"""GAIL's own parts: the discriminator's labels, the reward's sign, and a control that must fail."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.algorithms.gail import GAIL, IMITATION_REWARDS, GAILParams, discriminator_loss
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.discriminator import Discriminator
from support import policy_options, torso_options

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
