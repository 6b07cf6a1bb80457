"""APPO's update on rollouts written by hand: the clip, the target network, the bootstrap value."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.appo import APPO, APPOParams, appo_loss
from support import hand_batch, logit_gap, zero_policy


def linear_appo(**params: Any) -> APPO:
    defaults = {"clip_coef": 0.2, "learning_rate": 0.1, "max_grad_norm": 1e9, "gamma": 0.5, "gae_lambda": 1.0}
    return APPO(zero_policy(), APPOParams(**{**defaults, "normalize_advantages": False, **params}))


def test_loss_terms_by_hand() -> None:
    # Values 0, gamma 1/2, ratios 2 and 1/2, clipped to rho = c = 1, 1/2 in the traces:
    # v_1 = 1/2 * (2 + 1/2 * 6) = 2.5, v_0 = 4 + 1/2 * v_1 = 5.25
    # advantages, without a ratio: 4 + 1/2 * v_1 = 5.25, 2 + 1/2 * 6 = 5
    # surrogate: min(2 * 5.25, 1.2 * 5.25) = 6.3, min(1/2 * 5, 0.8 * 5) = 2.5
    appo = linear_appo(ent_coef=0.1, vf_coef=0.5, kl_coef=2.0)
    metrics = appo.update(hand_batch([2.0, 0.5], [4.0, 2.0], bootstrap_value=torch.tensor([6.0]))).metrics
    policy_loss, value_loss = -(6.3 + 2.5) / 2, 0.5 * (5.25**2 + 2.5**2) / 2
    kl = ((2 - 1 - math.log(2)) + (0.5 - 1 - math.log(0.5))) / 2
    assert metrics["policy_loss"].item() == pytest.approx(policy_loss)
    assert metrics["value_loss"].item() == pytest.approx(value_loss)
    assert metrics["kl"].item() == pytest.approx(kl, abs=1e-6)
    assert metrics["clip_fraction"].item() == 1.0
    assert metrics["loss"].item() == pytest.approx(policy_loss + 0.5 * value_loss - 0.1 * math.log(2) + 2.0 * kl)


def test_the_loss_names_its_terms() -> None:
    appo = linear_appo()
    evaluated = appo.policy.evaluate_actions(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    rows = {"behavior_logprobs": torch.tensor([math.log(0.25)]), "advantages": torch.ones(1), "returns": torch.ones(1)}
    loss = appo_loss(evaluated, rows, clip_coef=0.2, ent_coef=0.1, vf_coef=0.5)
    assert loss._fields == ("total", "policy_loss", "value_loss", "entropy", "kl", "log_ratio")
    assert loss.policy_loss.item() == pytest.approx(-1.2)
    assert loss.value_loss.item() == pytest.approx(0.5)
    assert loss.log_ratio.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(("ratio", "reward", "moves"), [(2.0, 1.0, 0), (0.5, -1.0, 0), (2.0, -1.0, -1), (0.5, 1.0, 1)])
def test_the_policy_moves_unless_the_clip_holds_it(ratio: float, reward: float, moves: int) -> None:
    appo = linear_appo()
    appo.update(hand_batch([ratio], [reward]))
    assert np.sign(logit_gap(appo)) == moves


def test_the_first_pass_has_the_ratio_one_and_later_ones_meet_the_clip() -> None:
    appo = linear_appo(clip_coef=0.1)
    batch = hand_batch([1.0, 1.0], [1.0, 1.0])
    fractions = [appo.update(batch).metrics["clip_fraction"].item() for _ in range(5)]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0


def test_the_bootstrap_value_reaches_the_targets() -> None:
    # v = 1 + 1/2 * bootstrap
    for bootstrap, target in ((0.0, 1.0), (6.0, 4.0)):
        metrics = linear_appo().update(hand_batch([1.0], [1.0], bootstrap_value=torch.tensor([bootstrap]))).metrics
        assert metrics["value_loss"].item() == pytest.approx(0.5 * target**2)


def test_the_target_network_gives_the_traces_their_ratios_and_follows_in_steps() -> None:
    batch = hand_batch([1.0], [1.0])

    def ratios(interval: int | None) -> list[float]:
        appo = linear_appo(target_update_interval=interval, clip_coef=1.0)
        return [appo.update(batch).metrics["rho_mean"].item() for _ in range(4)]

    lagging, moving = ratios(2), ratios(None)
    # 1 by the first policy, for two updates; then by the one that stood after them.
    assert lagging[0] == lagging[1] == pytest.approx(1.0)
    assert lagging[2] == lagging[3] == pytest.approx(moving[2])
    assert moving[0] < moving[1] < moving[2] < moving[3]


def test_the_kl_penalty_holds_the_policy_at_the_target() -> None:
    gaps = []
    for kl_coef in (0.0, 10.0):
        appo = linear_appo(target_update_interval=100, kl_coef=kl_coef, learning_rate=0.01, clip_coef=10.0)
        for _ in range(50):
            kl = appo.update(hand_batch([1.0], [1.0])).metrics["kl"].item()
        gaps.append(logit_gap(appo))
    assert kl > 0.0
    assert gaps[0] > 3 * gaps[1] > 0.0


@pytest.mark.parametrize(("normalize", "expected"), [(True, 0.0), (False, -2.0)])
def test_advantages_are_normalised_if_the_parameters_say_so(normalize: bool, expected: float) -> None:
    """At ratios of 1 the loss is minus the advantages' mean: without a future they are the rewards."""
    appo = linear_appo(normalize_advantages=normalize, gamma=0.0)
    metrics = appo.update(hand_batch([1.0, 1.0], [1.0, 3.0])).metrics
    assert metrics["policy_loss"].item() == pytest.approx(expected, abs=1e-6)


def test_the_kl_is_that_from_the_target_network_to_the_policy() -> None:
    # The target says (1/2, 1/2), the policy (p, 1 − p): KL = −1/2 log 2p − 1/2 log 2(1 − p), and not p log 2p + …
    appo = linear_appo(target_update_interval=100)
    appo.policy.head.linear.bias.data = torch.tensor([2.0, 0.0])
    p = 1.0 / (1.0 + math.exp(-2.0))
    kl = appo.update(hand_batch([1.0], [1.0])).metrics["kl"].item()
    assert kl == pytest.approx(-0.5 * math.log(2 * p) - 0.5 * math.log(2 * (1 - p)), rel=1e-5)
    assert kl != pytest.approx(p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)), rel=0.1)


def test_the_target_network_is_part_of_the_state() -> None:
    first, second = (linear_appo(target_update_interval=3) for _ in range(2))
    batch = hand_batch([1.0, 1.2], [1.0, 2.0])
    for _ in range(4):
        first.update(batch)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.target is not None
    assert second.target.age == 1
    results = [[appo.update(batch).metrics["loss"].item() for _ in range(3)] for appo in (first, second)]
    assert results[0] == results[1]
    assert "target" not in linear_appo().state_dict()
