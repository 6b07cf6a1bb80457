"""The planners' assembled losses, with their gradients, against slow references that are written from the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reference_planners import (
    ScaleZeroReference,
    consistency,
    efficientzero_unroll,
    muzero_unroll,
    planner_loss,
)
from rl_training.algorithms.efficientzero import EfficientZero, EfficientZeroParams
from rl_training.algorithms.muzero import MuZero
from rl_training.algorithms.params import LiveParams
from rl_training.envs.types import Spaces
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.search.policy import PUCTPolicy
from support import efficientzero_options
from test_muzero_update import FOUR_NUMBERS, batch_of, small_muzero
from test_scalezero_update import BOTH, small_scalezero, unroll_batch

SIZE, STEPS = 5, 3


def shake(module: nn.Module, seed: int = 0) -> None:
    """No head may begin at zero: what is zero hides what is wrong."""
    torch.manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.normal_(0.0, 0.3)


def random_parts(seed: int = 0) -> dict[str, Tensor]:
    """Masks that differ from each other, unequal importance weights, and targets of both signs."""
    torch.manual_seed(seed)
    masks = {
        "has_state": torch.rand(STEPS + 1, SIZE) < 0.7,
        "has_value": torch.rand(STEPS + 1, SIZE) < 0.7,
        "has_reward": torch.rand(STEPS, SIZE) < 0.7,
    }
    targets = {"value_targets": 4.0 * torch.randn(STEPS + 1, SIZE), "reward_targets": 2.0 * torch.randn(STEPS, SIZE)}
    return masks | targets | {"weights": 0.2 + torch.rand(SIZE)}


def assert_same_loss_and_gradients(algorithm: MuZero, batch: dict[str, Any], reference: Tensor) -> None:
    loss = captured_loss(algorithm, batch)
    torch.testing.assert_close(loss, reference, rtol=1e-5, atol=1e-5)
    parameters = [p for p in algorithm.policy.parameters() if p.requires_grad]
    found, wanted = (torch.autograd.grad(x, parameters, allow_unused=True) for x in (loss, reference))
    names = [name for name, p in algorithm.policy.named_parameters() if p.requires_grad]
    moved = 0
    for name, own, literal in zip(names, found, wanted, strict=True):
        own, literal = (torch.zeros(()) if grad is None else grad for grad in (own, literal))
        torch.testing.assert_close(own.expand_as(literal), literal, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: n + m)
        moved += bool(literal.any())
    assert moved > 0.8 * len(names)  # every part of the network has something to learn here


def captured_loss(algorithm: Any, batch: dict[str, Any]) -> Tensor:
    """What an update would minimise; nothing moves."""
    losses: list[Tensor] = []

    def keep(loss: Tensor, **_: Any) -> Tensor:
        losses.append(loss)
        return torch.zeros(())

    algorithm.optimizer.step = keep
    algorithm.update(batch)
    return losses[0]


def test_muzeros_loss_is_the_papers() -> None:
    algorithm = small_muzero(value_coef=0.25, target_update_interval=100)
    shake(algorithm.policy)
    batch = batch_of(SIZE, STEPS) | random_parts()
    unroll = muzero_unroll(algorithm.model, batch)
    assert_same_loss_and_gradients(algorithm, batch, planner_loss(unroll, batch, value_coef=0.25, support_size=3))


@pytest.mark.parametrize("horizon", [2, 5])
def test_efficientzeros_loss_is_the_papers(horizon: int) -> None:
    sizes = {"hidden_sizes": (16,), "latent_size": 8, "hidden_size": 16, "support_size": 3, "lstm_size": 6}
    options = efficientzero_options(**sizes, projection_size=8, lstm_horizon=horizon)
    model = EfficientZeroModel(FOUR_NUMBERS, options)
    params = LiveParams(EfficientZeroParams(value_coef=0.5, consistency_coef=2.0, lstm_horizon=horizon))
    algorithm = EfficientZero(PUCTPolicy(model, params, max_depth=None, first_action=0), params)
    shake(model)
    batch = batch_of(SIZE, STEPS) | random_parts() | {"next_obs": torch.randn(STEPS, SIZE, 4)}
    reference = planner_loss(efficientzero_unroll(model, batch), batch, value_coef=0.5, support_size=3)
    assert_same_loss_and_gradients(algorithm, batch, reference + 2.0 * consistency(model, batch))


def test_scalezeros_loss_is_the_papers_for_two_tasks() -> None:
    algorithm = small_scalezero(BOTH, value_coef=0.25, latent_coef=10.0, balance_coef=0.5)
    shake(algorithm.policy)
    shake(algorithm.target.network, seed=1)  # it lags behind: its latents are others
    batch = unroll_batch(SIZE, STEPS, BOTH) | random_parts()
    batch["actions"] %= 2  # the shorter task has two
    batch["policies"][:, 1::2, 2] = 0.0
    batch["has_obs"] = torch.rand(STEPS + 1, SIZE) < 0.7
    literal = ScaleZeroReference(algorithm.model, algorithm.target.network, batch)
    reference = planner_loss(literal.unroll, batch, value_coef=0.25, support_size=3)
    reference = reference + 10.0 * literal.latent_loss() + 0.5 * literal.balance_loss()
    assert_same_loss_and_gradients(algorithm, batch, reference)


def test_the_errors_that_become_priorities_are_those_of_the_first_states() -> None:
    algorithm = small_muzero()
    shake(algorithm.policy)
    batch = batch_of(SIZE, STEPS) | random_parts()
    with torch.no_grad():
        values = algorithm.policy.values(batch["obs"])
    errors = algorithm.update(batch).errors
    torch.testing.assert_close(errors, (values - batch["value_targets"][0]).abs())


def test_a_space_of_one_action_has_no_policy_to_learn() -> None:
    """The smallest unroll there is: log softmax of one logit is 0, values and rewards remain."""
    algorithm = small_muzero(Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(1)))
    shake(algorithm.policy)
    batch = batch_of(SIZE, 1) | {"actions": torch.zeros(1, SIZE, dtype=torch.int64)}
    batch["policies"] = torch.ones(2, SIZE, 1)
    assert float(algorithm.update(batch).metrics["policy_loss"]) == 0.0
