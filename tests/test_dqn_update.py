"""DQN's update: targets by hand, distributions against their definitions, and the weights of prioritised replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.dqn import DQN, DQNParams
from rl_training.algorithms.params import LiveParams
from rl_training.envs.types import Spaces
from rl_training.models.noisy import NoisyLinear
from rl_training.models.returns import CategoricalReturn
from rl_training.ops.q_learning import project, quantile_huber, truncated_pool
from rl_training.runtime.dqn_trainer import DQNLearner

ONE_NUMBER = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2))


def linear_dqn(weights: tuple[float, float], target: tuple[float, float], **params: Any) -> DQN:
    """Q(s, a) = weight of a times s, and the same for the target network."""
    algorithm = DQNLearner.build_algorithm(LiveParams(DQNParams(hidden_sizes=(), **params)), ONE_NUMBER)
    for network, chosen in ((algorithm.network, weights), (algorithm.target.network, target)):
        network.advantages.weight.data = torch.tensor(chosen)[:, None]
        network.advantages.bias.data.zero_()
    return algorithm


def batch(**changes: Any) -> dict[str, Tensor]:
    """Two rows: one goes on, discounted by 0.5, the other has ended."""
    rows = {
        "obs": [[1.0], [1.0]],
        "actions": [0, 1],
        "rewards": [1.0, 2.0],
        "next_obs": [[2.0], [2.0]],
        "discounts": [0.5, 0.0],
        "weights": [1.0, 1.0],
    }
    return {name: torch.tensor(column) for name, column in (rows | changes).items()}


@pytest.mark.parametrize(("double", "first"), [(True, 1.0 + 0.5 * 2 * 0.3), (False, 1.0 + 0.5 * 2 * 0.7)])
def test_targets_by_hand(double: bool, first: float) -> None:
    """The network likes action 1, its target network action 0: the former's choice is worth 0.3, the latter's 0.7."""
    algorithm = linear_dqn((0.1, 0.9), (0.7, 0.3), double=double)
    torch.testing.assert_close(algorithm.targets(batch()), torch.tensor([[first], [2.0]]))


def test_the_loss_is_hubers_by_the_weights_and_the_errors_are_the_priorities() -> None:
    # Q(s, a) = 0.1 and 0.9, targets 1.3 and 2: errors 1.2 and 1.1, Huber's losses 0.7 and 0.6.
    result = linear_dqn((0.1, 0.9), (0.7, 0.3)).update(batch(weights=[1.0, 0.5]))
    torch.testing.assert_close(result.errors, torch.tensor([1.2, 1.1]))
    assert float(result.metrics["loss"]) == pytest.approx((0.7 + 0.5 * 0.6) / 2)


def test_the_target_network_follows_at_its_interval_by_tau() -> None:
    algorithm = linear_dqn((0.0, 0.0), (1.0, 1.0), target_update_interval=2, tau=0.25, learning_rate=1e-12)
    weight = algorithm.target.network.advantages.weight
    for expected in (1.0, 0.75, 0.75, 0.5625):
        algorithm.update(batch())
        torch.testing.assert_close(weight, torch.full_like(weight, expected))


def test_dueling_advantages_have_no_mean() -> None:
    algorithm = DQNLearner.build_algorithm(LiveParams(DQNParams(dueling=True)), ONE_NUMBER)
    obs = torch.rand(5, 1)
    value = algorithm.network.value(algorithm.network.torso(obs))
    torch.testing.assert_close(algorithm.network(obs).mean(-2), value)


def test_projection_splits_probability_between_neighbours() -> None:
    # 0.25 · 2 = 0.5 lies half way from 0 to 1; 5 is beyond the support and goes to its end.
    support = torch.tensor([0.0, 1.0, 2.0])
    projected = project(torch.tensor([[0.4, 0.6]]), torch.tensor([[0.5, 5.0]]), support)
    torch.testing.assert_close(projected, torch.tensor([[0.2, 0.2, 0.6]]))


def test_a_categorical_target_has_the_mean_of_its_returns() -> None:
    returns = CategoricalReturn(21, -5.0, 5.0)
    logits = torch.randn(7, 21, generator=torch.Generator().manual_seed(0))
    rewards, discounts = torch.full((7,), 0.3), torch.full((7,), 0.5)
    target = returns.targets(logits, rewards, discounts)
    torch.testing.assert_close(target @ returns.support, 0.3 + 0.5 * returns.mean(logits))
    torch.testing.assert_close(target.sum(-1), torch.ones(7))


def test_quantile_huber_is_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    quantiles, targets = torch.randn(3, 4, generator=generator), torch.randn(3, 5, generator=generator)
    expected = torch.zeros(3)
    for b in range(3):
        for i in range(4):
            for j in range(5):
                error = float(targets[b, j] - quantiles[b, i])
                huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                expected[b] += abs((i + 0.5) / 4 - (error < 0)) * huber / 5
    torch.testing.assert_close(quantile_huber(quantiles, targets), expected)


def test_truncation_drops_the_highest_of_all_critics() -> None:
    quantiles = torch.tensor([[[3.0, 1.0]], [[9.0, 2.0]]])  # two critics, one row
    torch.testing.assert_close(truncated_pool(quantiles, 1), torch.tensor([[1.0, 2.0, 3.0]]))


def test_noise_is_drawn_anew_and_ends() -> None:
    layer, x = NoisyLinear(8, 3), torch.ones(1, 8)
    quiet = layer(x)
    layer.draw_noise(torch.Generator().manual_seed(0))
    noisy = layer(x)
    assert not torch.equal(noisy, quiet)
    layer.quiet()
    assert torch.equal(layer(x), quiet)


def test_weights_make_up_for_the_priorities_and_the_greatest_is_1() -> None:
    """A row drawn four times its share counts 4^-0.5 = half as much as one that was drawn by its share."""
    learner = DQNLearner(
        DQNParams(priority_alpha=0.6, priority_beta=0.5, learning_starts=1),
        ONE_NUMBER,
        num_envs=1,
        seed=0,
        device=torch.device("cpu"),
    )
    np.testing.assert_allclose(learner.weights(np.array([1.0, 4.0, 0.25])), [0.5, 0.25, 1.0])
