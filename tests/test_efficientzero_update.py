"""What EfficientZero adds to MuZero: value prefixes, consistency, and targets that trust old data less."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms.efficientzero import EfficientZeroParams, consistency_loss
from rl_training.envs.types import Spaces
from rl_training.kernels import planning, using
from rl_training.kernels.mlp_weights import weights_of
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.ops.unroll import value_prefixes
from rl_training.runtime.efficientzero_trainer import EfficientZeroLearner
from rl_training.search.rules import puct
from rl_training.search.search import Roots, search
from support import efficientzero_options
from test_muzero_update import rollout_of

SPACES = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3))


def small_model(horizon: int, **sizes: int) -> EfficientZeroModel:
    torch.manual_seed(0)
    sizes = {"latent_size": 8, "hidden_size": 16, "support_size": 3, "lstm_size": 6, "projection_size": 8, **sizes}
    model = EfficientZeroModel(SPACES, efficientzero_options(hidden_sizes=(16,), **sizes, lstm_horizon=horizon))
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5)
    return model


def test_value_prefixes_begin_anew_at_the_horizon() -> None:
    rewards = np.array([[1.0], [2.0], [3.0], [4.0], [5.0]])
    assert value_prefixes(rewards, 5)[:, 0].tolist() == [1, 3, 6, 10, 15]
    assert value_prefixes(rewards, 2)[:, 0].tolist() == [1, 3, 3, 7, 5]


@torch.no_grad()
@pytest.mark.parametrize("horizon", [2, 5])
def test_rewards_in_the_search_add_up_to_the_prefixes_of_the_unroll(horizon: int) -> None:
    model = small_model(horizon)
    obs, actions = torch.randn(4, 1), torch.randint(3, (5, 4))
    prefixes = model.scalar(model.unroll(obs, actions).reward).numpy()
    latents, *_ = model.initial(obs)
    rewards = []
    for chosen in actions:
        latents, reward, *_ = model.recurrent(latents, chosen)
        rewards.append(reward.numpy())
    np.testing.assert_allclose(value_prefixes(np.stack(rewards), horizon), prefixes, atol=1e-5)


@torch.no_grad()
def test_the_unrolls_values_and_policies_are_those_of_the_search() -> None:
    model = small_model(5)
    obs, actions = torch.randn(4, 1), torch.randint(3, (2, 4))
    unrolled = model.unroll(obs, actions)
    latents, values, policy = model.initial(obs)
    torch.testing.assert_close(model.scalar(unrolled.value[0]), values)
    for k, chosen in enumerate(actions):
        latents, _, values, policy = model.recurrent(latents, chosen)
        torch.testing.assert_close(model.scalar(unrolled.value[k + 1]), values)
        torch.testing.assert_close(unrolled.policy[k + 1], policy)


@torch.no_grad()
@pytest.mark.parametrize("lstm_size", [6, 64])
def test_the_compiled_network_equals_the_torch_one_past_the_horizon(lstm_size: int) -> None:
    model = small_model(2, lstm_size=lstm_size)
    compiled = weights_of(model)
    rows, *_ = model.initial(torch.randn(7, 1))
    fast = rows.numpy()
    for chosen in torch.randint(3, (5, 7)):
        answers = [np.empty(shape, dtype=np.float32) for shape in (fast.shape, (7, 3), (7,), (7,))]
        planning.recurrent(fast, chosen.numpy(), *compiled, *answers)
        rows, rewards, values, logits = model.recurrent(rows, chosen)
        for found, expected in zip(answers, (rows, logits, rewards, values), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5, rtol=1e-5)
        fast = answers[0]


@torch.no_grad()
def test_the_compiled_search_equals_the_one_that_calls_torch() -> None:
    model = small_model(2)
    latents, values, logits = model.initial(torch.randn(6, 1))
    roots, found = Roots(latents, logits.numpy(), values.numpy()), []
    for mode in ("auto", "off"):
        with using(mode):
            found.append(search(roots, model, rule=puct(), num_simulations=30, discount=0.95))
    np.testing.assert_array_equal(found[0].visits, found[1].visits)
    np.testing.assert_allclose(found[0].values, found[1].values, atol=1e-4)


def test_consistency_by_hand() -> None:
    # the same direction costs 0, a right angle 1, the opposite 2; what was not observed costs nothing
    observed = torch.tensor([[[1.0, 0.0]]]).repeat(1, 4, 1)
    imagined = torch.tensor([[[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [-1.0, 0.0]]])
    known = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(consistency_loss(imagined, observed, known), torch.tensor([[0.0, 1.0, 2.0, 0.0]]))


def test_consistency_moves_the_dynamics_and_not_the_observed_side() -> None:
    model = small_model(5, projection_size=32)
    unrolled = model.unroll(torch.randn(4, 1), torch.randint(3, (1, 4)))
    observed = model.project_observed(torch.randn(4, 1))
    assert not observed.requires_grad
    consistency_loss(model.project_online(unrolled.latents[1:]), observed[None], torch.ones(1, 4)).sum().backward()
    assert model.dynamics.layers[0].weight.grad.abs().sum() > 0


def test_older_rows_have_shorter_targets() -> None:
    params = EfficientZeroParams(n_steps=3, correction_interval=4, hidden_sizes=(8,), latent_size=8, hidden_size=8)
    learner = EfficientZeroLearner(params, SPACES, num_envs=1, seed=0, device=torch.device("cpu"))
    learner.replay.add(rollout_of(16))
    rows = (np.zeros(4, dtype=int), np.array([15, 11, 7, 0]))
    # ages 0, 4, 8, 15: a step less for every four
    assert learner.n_steps(rows).tolist() == [3, 2, 1, 0]
