"""Value transforms and two-hot encodings: by hand, round trips, and the exact zero."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rl_training.ops.transforms import (
    expected_value,
    from_two_hot,
    signed_hyperbolic,
    signed_parabolic,
    symexp,
    symexp_bins,
    symlog,
    two_hot,
)

SPREAD = torch.tensor([-1e6, -300.0, -1.0, -1e-4, 0.0, 1e-4, 1.0, 300.0, 1e6])


def test_symlog_by_hand() -> None:
    x = torch.tensor([math.e - 1, 0.0, 1 - math.e**2])
    torch.testing.assert_close(symlog(x), torch.tensor([1.0, 0.0, -2.0]))
    torch.testing.assert_close(symexp(torch.tensor([1.0, 0.0, -2.0])), x)


def test_symexp_undoes_symlog() -> None:
    torch.testing.assert_close(symexp(symlog(SPREAD)), SPREAD, rtol=1e-5, atol=0.0)


def test_signed_hyperbolic_by_hand() -> None:
    # h(3) = sqrt(4) - 1 + 0.001 * 3 = 1.003;  h(-8) = -(sqrt(9) - 1) - 0.008 = -2.008
    x = torch.tensor([3.0, -8.0, 0.0])
    torch.testing.assert_close(signed_hyperbolic(x), torch.tensor([1.003, -2.008, 0.0]))


def test_signed_parabolic_is_the_papers_inverse() -> None:
    eps = 1e-3
    x = torch.linspace(-300, 300, 101, dtype=torch.float64)
    root = ((1 + 4 * eps * (x.abs() + 1 + eps)).sqrt() - 1) / (2 * eps)
    torch.testing.assert_close(signed_parabolic(x, eps), x.sign() * (root.square() - 1))


@pytest.mark.parametrize("eps", [1e-3, 1e-2, 0.0])
def test_signed_parabolic_undoes_signed_hyperbolic_in_float32(eps: float) -> None:
    torch.testing.assert_close(signed_parabolic(signed_hyperbolic(SPREAD, eps), eps), SPREAD, rtol=1e-5, atol=0.0)


def test_signed_transforms_have_slope_at_zero() -> None:
    # h'(0) = 1/2 + eps
    x = torch.zeros(1, requires_grad=True)
    signed_hyperbolic(x).backward()
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(0.501)


def test_two_hot_by_hand() -> None:
    support = torch.tensor([-1.0, 0.0, 4.0])
    #  1 is a quarter of the way from 0 to 4;  -0.5 is half way from -1 to 0;  0 is a bin;  9 and -9 are clamped
    expected = [[0, 0.75, 0.25], [0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    torch.testing.assert_close(two_hot(torch.tensor([1.0, -0.5, 0.0, 9.0, -9.0]), support), torch.tensor(expected))


@pytest.mark.parametrize("support", [torch.arange(-300.0, 301.0), torch.linspace(-20, 20, 255), symexp_bins(4)])
def test_two_hot_is_a_distribution_over_two_neighbours_with_the_right_mean(support: Tensor) -> None:
    torch.manual_seed(0)
    x = torch.empty(7, 9).uniform_(support[0].item(), support[-1].item())
    encoded = two_hot(x, support)
    assert encoded.shape == (7, 9, len(support))
    assert (encoded >= 0).all()
    assert ((encoded > 0).sum(-1) <= 2).all()
    torch.testing.assert_close(encoded.sum(-1), torch.ones(7, 9))
    torch.testing.assert_close(from_two_hot(encoded, support), x, rtol=1e-5, atol=1e-4)


def test_every_bin_is_encoded_by_itself() -> None:
    bins = symexp_bins()
    assert torch.equal(two_hot(bins, bins), torch.eye(255))


def test_symlog_two_hot_round_trip_with_255_bins() -> None:
    x = torch.tensor([-1e8, -1234.5, -1.0, -1e-3, 0.0, 1e-3, 1.0, 1234.5, 1e8])
    support = torch.linspace(-20, 20, 255)
    torch.testing.assert_close(symexp(from_two_hot(two_hot(symlog(x), support), support)), x, rtol=1e-4, atol=1e-5)
    bins = symexp_bins()
    torch.testing.assert_close(from_two_hot(two_hot(x, bins), bins), x, rtol=1e-5, atol=1e-6)


def test_muzero_value_round_trip_with_601_bins() -> None:
    x = torch.tensor([-5000.0, -3.3, 0.0, 0.25, 77.0, 20_000.0])
    support = torch.arange(-300.0, 301.0)
    decoded = signed_parabolic(from_two_hot(two_hot(signed_hyperbolic(x), support), support))
    torch.testing.assert_close(decoded, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [255, 254, 3, 2])
def test_an_unbiased_head_predicts_exactly_zero(n: int) -> None:
    """A plain dot product over bins of 1e8 gives anything but 0."""
    assert torch.equal(expected_value(torch.full((3, n), 0.7), symexp_bins(n)), torch.zeros(3))


def test_expected_value_by_hand() -> None:
    # p = [1/4, 3/4] on [-2, 6]: -0.5 + 4.5 = 4
    logits = torch.tensor([1.0, 3.0]).log()
    assert expected_value(logits, torch.tensor([-2.0, 6.0])).item() == pytest.approx(4.0)


def test_expected_value_is_differentiable() -> None:
    # d mean / d logit_i = p_i (s_i - mean): here 1/2 * (-1 - 0) and 1/2 * (1 - 0)
    logits = torch.zeros(2, requires_grad=True)
    expected_value(logits, torch.tensor([-1.0, 1.0])).backward()
    torch.testing.assert_close(logits.grad, torch.tensor([-0.5, 0.5]))


@pytest.mark.parametrize("n", [255, 254])
def test_symexp_bins_are_sorted_symmetric_and_reach_the_limits(n: int) -> None:
    bins = symexp_bins(n)
    assert len(bins) == n
    assert (bins.diff() > 0).all()
    assert torch.equal(bins, -bins.flip(0))
    assert bins[-1].item() == pytest.approx(math.expm1(20.0), rel=1e-5)
