"""SAC's update: the density of a squashed Gaussian, targets by hand, and who is moved by which loss."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.sac import SAC, SACParams, entropy, soft_values
from rl_training.envs.types import Spaces
from rl_training.models.actors import Candidates
from rl_training.models.critics import CriticOptions, Critics, EnsembleRenorm
from rl_training.models.heads import log_tanh_slope
from rl_training.models.options import options_from
from rl_training.models.squashed import SquashedGaussian, bounded_scale
from rl_training.models.torsos import TorsoOptions
from rl_training.runtime.sac_trainer import SACLearner

BOX = Spaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32))
DISCRETE = Spaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))


def built(spaces: Spaces = BOX, **params: Any) -> SAC:
    given = LiveParams(SACParams(**{"hidden_sizes": (8, 8), "learning_rate": 1e-2, **params}))
    return SACLearner.build_seeded(given, spaces, seed=0, device=torch.device("cpu"))


def batch(spaces: Spaces = BOX, rows: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    discrete = isinstance(spaces.action, type(DISCRETE.action))
    actions = torch.randint(4, (rows,), generator=generator) if discrete else torch.rand(rows, 2, generator=generator)
    return {
        "obs": torch.randn(rows, 3, generator=generator),
        "actions": actions,
        "rewards": torch.randn(rows, generator=generator),
        "next_obs": torch.randn(rows, 3, generator=generator),
        "discounts": torch.tensor([0.99, 0.0] * (rows // 2)),
        "weights": torch.ones(rows),
    }


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_the_log_density_is_that_of_the_change_of_variables() -> None:
    head = SquashedGaussian(4, 2)
    features = 0.3 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    actions, logprobs = head.sample(features, torch.Generator().manual_seed(0))
    mean, log_std = head(features)
    gaussian = torch.distributions.Normal(mean, log_std.exp()).log_prob(actions.atanh())
    torch.testing.assert_close(logprobs, (gaussian - (1 - actions.square()).log()).sum(-1), rtol=1e-4, atol=1e-4)


def test_the_density_integrates_to_1() -> None:
    mean, log_std = 0.7, math.log(0.6)
    actions = torch.linspace(-0.99999, 0.99999, 200_001, dtype=torch.float64)
    raw = actions.atanh()
    logprobs = torch.distributions.Normal(mean, math.exp(log_std)).log_prob(raw) - log_tanh_slope(raw)
    assert float(torch.trapezoid(logprobs.exp(), actions)) == pytest.approx(1.0, abs=1e-3)


def test_a_slope_does_not_round_to_infinity() -> None:
    assert float(log_tanh_slope(torch.tensor(20.0))) == pytest.approx(2 * (math.log(2) - 20), rel=1e-6)


def test_actions_reach_the_bounds_and_no_further() -> None:
    scale = bounded_scale(spaces.Box(np.float32([-2, 0]), np.float32([2, 10])))
    reached = scale.to_env(np.float32([[-1, -1], [0, 0], [1, 1]]))
    np.testing.assert_allclose(reached, [[-2, 0], [0, 5], [2, 10]])


def test_soft_values_by_hand() -> None:
    # 0.25 (1 − 0.5 ln 0.25) + 0.75 (2 − 0.5 ln 0.75)
    probs = torch.tensor([[0.25, 0.75]])
    candidates = Candidates(None, probs, probs.log())
    by_hand = 0.25 * (1 - 0.5 * math.log(0.25)) + 0.75 * (2 - 0.5 * math.log(0.75))
    assert float(soft_values(torch.tensor([[1.0, 2.0]]), candidates, 0.5)) == pytest.approx(by_hand)
    assert float(entropy(candidates)) == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))


@pytest.mark.parametrize("spaces", [BOX, DISCRETE], ids=["Box", "Discrete"])
def test_the_critics_target_by_hand(spaces: Spaces) -> None:
    algorithm, rows = built(spaces, ent_coef=0.3), batch(spaces)
    before = algorithm.noise.state_dict()["state"].clone()
    targets = algorithm.targets(rows)[:, 0]
    algorithm.noise.generator.set_state(before)
    with torch.no_grad():
        candidates = algorithm.policy.candidates(rows["next_obs"], algorithm.noise.generator)
        first, second = algorithm.target.network(rows["next_obs"], candidates.actions).squeeze(-1)
    for row in range(6):
        worth = sum(
            float(candidates.weights[row, k])
            * (min(float(first[row, k]), float(second[row, k])) - 0.3 * float(candidates.logprobs[row, k]))
            for k in range(first.shape[1])
        )
        expected = float(rows["rewards"][row]) + float(rows["discounts"][row]) * worth
        assert float(targets[row]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("spaces", [BOX, DISCRETE], ids=["Box", "Discrete"])
def test_each_loss_moves_its_own_network(spaces: Spaces) -> None:
    algorithm, rows = built(spaces), batch(spaces)
    actor, critics = flat(algorithm.policy), flat(algorithm.critics)
    algorithm.update_critics(rows)
    assert torch.equal(flat(algorithm.policy), actor)
    moved = flat(algorithm.critics)
    assert not torch.equal(moved, critics)
    algorithm.update_policy(rows)
    assert torch.equal(flat(algorithm.critics), moved)
    assert not torch.equal(flat(algorithm.policy), actor)
    assert all(p.requires_grad for p in algorithm.critics.parameters())


def test_critics_share_no_weight_and_equal_separate_networks() -> None:
    torso = options_from(TorsoOptions, SACParams(hidden_sizes=(8, 8)))
    critics = Critics(BOX, options_from(CriticOptions, SACParams(num_critics=3), torso=torso))
    obs, actions = torch.randn(5, 3), torch.rand(5, 2)
    for member in range(3):
        x = torch.cat([obs, actions], dim=-1)
        for layer in critics.layers:
            x = (x @ layer.weight[member] + layer.bias[member]).relu()
        x = x @ critics.last.weight[member] + critics.last.bias[member]
        torch.testing.assert_close(critics(obs, actions)[member, :, 0], x)


@pytest.mark.parametrize("target", [-2.0, 0.5])
def test_the_temperature_brings_the_entropy_to_its_target(target: float) -> None:
    """Actions cost their square: a low temperature makes the policy narrow, a high one as wide as it can be."""
    algorithm, rows = built(target_entropy=target, learning_rate=5e-3, initial_ent_coef=0.2), batch(rows=64)
    rows["discounts"] = torch.zeros(64)
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(800):
        rows["actions"] = 2 * torch.rand(64, 2, generator=generator) - 1
        rows["rewards"] = -5.0 * rows["actions"].square().sum(-1)
        found.append(float(algorithm.update(rows).metrics["entropy"]))
    assert np.mean(found[-100:]) == pytest.approx(target, abs=0.3)


def test_a_fixed_temperature_is_not_learned() -> None:
    algorithm = built(ent_coef=0.2)
    before = algorithm.temperature.log.clone()
    assert float(algorithm.update(batch()).metrics["ent_coef"]) == pytest.approx(0.2)
    assert torch.equal(algorithm.temperature.log, before)
    assert SACParams(ent_coef="auto").ent_coef is None


def test_dropout_and_layer_norm_are_in_updates_and_drawn_from_their_own_stream() -> None:
    algorithm = built(dropout=0.5, layer_norm=True)
    rows = batch()
    calls = [algorithm.critics(rows["obs"], rows["actions"], algorithm.noise.generator) for _ in range(2)]
    assert not torch.equal(*calls)
    without = [algorithm.critics(rows["obs"], rows["actions"]) for _ in range(2)]
    assert torch.equal(*without)


def test_quantile_targets_leave_the_highest_out() -> None:
    algorithm, rows = built(num_quantiles=5, dropped_quantiles=2, ent_coef=0.0), batch()
    before = algorithm.noise.state_dict()["state"].clone()
    targets = algorithm.targets(rows)
    algorithm.noise.generator.set_state(before)
    with torch.no_grad():
        actions = algorithm.policy.candidates(rows["next_obs"], algorithm.noise.generator).actions
        quantiles = algorithm.target.network(rows["next_obs"], actions).squeeze(-2)
    kept = sorted(float(q) for q in quantiles[:, 0].flatten())[:6]
    expected = [float(rows["rewards"][0]) + 0.99 * q for q in kept]
    torch.testing.assert_close(targets[0], torch.tensor(expected))


# ---- batch renormalisation in place of targets (CrossQ)


def test_a_renormalised_batch_has_no_mean_and_unit_deviation_at_first() -> None:
    layer = EnsembleRenorm(2, 3)
    x = 5.0 + 2.0 * torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(0))
    found = layer(x)
    torch.testing.assert_close(found.mean(1), torch.zeros(2, 3), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(found.std(1, correction=0), torch.ones(2, 3), atol=1e-3, rtol=0.0)
    torch.testing.assert_close(layer.mean, 0.01 * x.mean(1, keepdim=True))
    assert int(layer.steps) == 1


def test_after_the_warm_up_the_batch_is_seen_as_running_statistics_see_it() -> None:
    """Within the bounds, r = σ/σ' and d = (μ − μ')/σ' give (x − μ') / σ': what evaluation does."""
    layer = EnsembleRenorm(1, 2)
    layer.mean.fill_(0.5)
    layer.var.fill_(2.0)
    layer.steps.fill_(EnsembleRenorm.WARMUP_STEPS)
    x = torch.randn(1, 50, 2, generator=torch.Generator().manual_seed(0))
    by_running = (x - 0.5) / math.sqrt(2.0 + EnsembleRenorm.EPS)
    torch.testing.assert_close(layer(x), by_running)
    layer.mean.fill_(100.0)  # further away than the bound on the shift: 5 deviations
    assert float(layer(x).detach().mean()) == pytest.approx(-5.0, abs=0.1)


@pytest.mark.parametrize("spaces", [BOX, DISCRETE], ids=["Box", "Discrete"])
def test_renormalised_critics_follow_themselves_by_one_pass_over_both_states(spaces: Spaces) -> None:
    algorithm, rows = built(spaces, batch_renorm=True, ent_coef=0.0), batch(spaces)
    assert algorithm.target is None
    before = algorithm.noise.state_dict()["state"].clone()
    twin = copy.deepcopy(algorithm.critics).train()
    values, targets = algorithm.values_and_targets(rows)
    algorithm.noise.generator.set_state(before)
    with torch.no_grad():
        candidates = algorithm.policy.candidates(rows["next_obs"], algorithm.noise.generator)
        actions = None if candidates.actions is None else torch.cat([rows["actions"], candidates.actions])
        outputs = twin(torch.cat([rows["obs"], rows["next_obs"]]), actions)[..., 0]
    worth = (candidates.weights * outputs[:, 6:].amin(0)).sum(-1)
    torch.testing.assert_close(targets[:, 0], rows["rewards"] + rows["discounts"] * worth)
    assert values.requires_grad
    assert not targets.requires_grad
    assert not algorithm.critics.training  # the actor climbs them by their running statistics
