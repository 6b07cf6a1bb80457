"""Squashed scalars and categorical (two-hot) encodings of them."""

from __future__ import annotations

import torch
from torch import Tensor


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(1 + |x|) (Hafner et al., 2023)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp|x| - 1), the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


def signed_hyperbolic(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al., 2018)."""
    # sqrt(1 + a) - 1 = a / (sqrt(1 + a) + 1), which does not cancel near 0.
    return x / ((x.abs() + 1.0).sqrt() + 1.0) + eps * x


def signed_parabolic(x: Tensor, eps: float = 1e-3) -> Tensor:
    """The inverse of `signed_hyperbolic` (Pohlen et al., 2018)."""
    # With u = sqrt(|y| + 1) - 1, |h(y)| = eps u^2 + (1 + 2 eps) u. This form of the root does not cancel: the
    # paper's subtracts numbers that differ by eps and loses four digits in float32.
    slope = 1.0 + 2.0 * eps
    u = 2.0 * x / (slope + (slope**2 + 4.0 * eps * x.abs()).sqrt())
    return u * (u.abs() + 2.0)


def two_hot(x: Tensor, support: Tensor) -> Tensor:
    """Weights `[..., N]` on the two neighbours of `x` in a sorted `support` `[N]`; their mean is `x`, clamped."""
    upper, weight = upper_neighbours(x, support)
    encoded = support.new_zeros(*x.shape, len(support))
    encoded.scatter_(-1, (upper - 1).unsqueeze(-1), (1.0 - weight).unsqueeze(-1))
    return encoded.scatter_(-1, upper.unsqueeze(-1), weight.unsqueeze(-1))


def upper_neighbours(x: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """The place above each clamped `x` in a sorted support, and its weight; the place below has the rest."""
    x = x.to(support.dtype).clamp(support[0], support[-1])
    upper = torch.searchsorted(support, x.contiguous(), right=True).clamp(1, len(support) - 1)
    lower = support[upper - 1]
    return upper, (x - lower) / (support[upper] - lower)


def from_two_hot(probs: Tensor, support: Tensor) -> Tensor:
    """The mean of `support` under `probs` `[..., N]`, exactly 0 if both are symmetric."""
    # Opposite bins are added first: in any other order the rounding of bins near 1e8 drowns a mean near 0.
    terms = probs * support
    return 0.5 * (terms + terms.flip(-1)).sum(-1)


def expected_value(logits: Tensor, support: Tensor) -> Tensor:
    """The mean of `support` under `softmax(logits)`."""
    return from_two_hot(logits.softmax(-1), support)


def symexp_bins(n: int = 255, limit: float = 20.0) -> Tensor:
    """`n` bins, evenly spaced in symlog space over [-limit, limit] and exactly symmetric (Hafner et al., 2023)."""
    negative = symexp(torch.linspace(-limit, limit, n))[: n // 2]
    return torch.cat([negative, torch.zeros(n % 2), -negative.flip(0)])
