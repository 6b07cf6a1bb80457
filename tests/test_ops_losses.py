"""PPO's losses and diagnostics: by hand, and where the gradient must vanish."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rl_training.ops.losses import (
    approx_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    normalize,
)


def log_of(*ratios: float) -> Tensor:
    return torch.tensor(ratios).log()


def test_clipped_surrogate_by_hand() -> None:
    # ratios 1.5, 0.5, 1.1 with A = 2, -1, 3, clip 0.2:
    #   min(3, 1.2*2) = 2.4;  min(-0.5, 0.8*-1) = -0.8;  min(3.3, 3.3) = 3.3;  -(2.4 - 0.8 + 3.3) / 3 = -4.9 / 3
    loss = clipped_surrogate(log_of(1.5, 0.5, 1.1), torch.tensor([2.0, -1.0, 3.0]), 0.2)
    assert loss.item() == pytest.approx(-4.9 / 3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [
        (1.5, 1.0, 0.0),  # already more likely than the clip allows: no reason to go on
        (0.5, -1.0, 0.0),
        (1.5, -1.0, 1.5),  # d/d(log ratio) of -(ratio * A) = -ratio * A: the way back stays open
        (0.5, 1.0, -0.5),
        (1.0, 1.0, -1.0),  # at the old policy it is the plain policy gradient
    ],
)
def test_the_clip_stops_the_gradient_outwards_only(ratio: float, advantage: float, gradient: float) -> None:
    log_ratio = log_of(ratio).requires_grad_()
    clipped_surrogate(log_ratio, torch.tensor([advantage]), 0.2).backward()
    assert log_ratio.grad is not None
    if gradient == 0.0:
        assert log_ratio.grad.item() == 0.0
    assert log_ratio.grad.item() == pytest.approx(gradient)


def test_value_loss_is_half_the_squared_error() -> None:
    # errors 1 and 3: 0.5 * (1 + 9) / 2 = 2.5
    values, targets = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 3.0])
    assert clipped_value_loss(values, torch.full((2,), 99.0), targets, None).item() == 2.5


def test_clipped_value_loss_takes_the_worse_error() -> None:
    # old 0, clip 0.5. v = 2, target 3: clipped 0.5, max(1, 6.25) = 6.25.  v = 2, target -1: max(9, 2.25) = 9.
    values, old_values, targets = torch.tensor([2.0, 2.0]), torch.zeros(2), torch.tensor([3.0, -1.0])
    loss = clipped_value_loss(values, old_values, targets, 0.5)
    assert loss.item() == pytest.approx(0.5 * (6.25 + 9.0) / 2)


def test_approx_kl_by_hand() -> None:
    # k3 at ratio 2: (2 - 1) - ln 2;  at ratio 1/2: (1/2 - 1) + ln 2;  their mean is 1/4
    assert approx_kl(log_of(2.0, 0.5)).item() == pytest.approx(0.25)
    assert approx_kl(torch.zeros(4)).item() == 0.0


def test_approx_kl_estimates_the_kl_of_two_gaussians_and_is_never_negative() -> None:
    # KL(N(0,1) || N(m,1)) = m^2 / 2 with log ratio = m x - m^2 / 2
    torch.manual_seed(0)
    mean = 0.3
    log_ratio = mean * torch.randn(200_000) - mean**2 / 2
    assert approx_kl(log_ratio).item() == pytest.approx(mean**2 / 2, rel=0.02)
    # x^2 / 2 to first order; computed as (exp(x) - 1) - x it would drown in the rounding of exp(x).
    assert approx_kl(torch.tensor([1e-4])).item() == pytest.approx(5e-9, rel=0.01)


def test_clip_fraction_counts_ratios_outside() -> None:
    assert clip_fraction(log_of(1.0, 1.1, 1.3, 0.7), 0.2).item() == 0.5


def test_explained_variance_by_hand() -> None:
    # targets 0 2 (variance 1), residuals 0 1 (variance 1/4): 1 - 1/4
    assert explained_variance(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])).item() == 0.75


@pytest.mark.parametrize(("guess", "explained"), [("targets", 1.0), ("mean", 0.0), ("opposite", -3.0)])
def test_explained_variance_of_good_idle_and_bad_critics(guess: str, explained: float) -> None:
    targets = torch.tensor([-1.0, 1.0, 3.0, -3.0])
    values = {"targets": targets, "mean": torch.zeros(4), "opposite": -targets}[guess]
    assert explained_variance(values, targets).item() == explained


@pytest.mark.parametrize("targets", [torch.tensor([5.0]), torch.full((1000,), 0.1)])
def test_explained_variance_of_constant_targets_is_zero(targets: Tensor) -> None:
    assert explained_variance(torch.randn(len(targets)), targets).item() == 0.0


def test_normalize_by_hand() -> None:
    # mean 3, deviations -2 0 2, population std sqrt(8/3)
    scaled = 2.0 / math.sqrt(8 / 3)
    torch.testing.assert_close(normalize(torch.tensor([1.0, 3.0, 5.0])), torch.tensor([-scaled, 0.0, scaled]))


@pytest.mark.parametrize("advantages", [torch.tensor([7.0]), torch.full((1000,), 0.1), torch.zeros(3)])
def test_normalize_of_equal_advantages_is_zero(advantages: Tensor) -> None:
    assert torch.equal(normalize(advantages), torch.zeros_like(advantages))


def test_normalize_keeps_shape_and_dtype() -> None:
    normalized = normalize(torch.randn(6, 4, dtype=torch.float64))
    assert normalized.shape == (6, 4)
    assert normalized.dtype == torch.float64
    assert normalized.mean().item() == pytest.approx(0.0, abs=1e-12)
    assert normalized.std(correction=0).item() == pytest.approx(1.0, abs=1e-7)
