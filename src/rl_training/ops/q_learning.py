"""Targets and losses of Q-learning. Rows are `[B]`; a distribution of returns has `Z` atoms, `[B, Z]`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rl_training.ops.transforms import upper_neighbours


def project(probs: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    """The distribution with `probs` on `returns` `[B, Z]`, brought to the support (Bellemare et al., 2017, eq. 7)."""
    upper, weight = upper_neighbours(returns, support)
    above = probs * weight
    projected = probs.new_zeros(len(probs), len(support)).scatter_add_(-1, upper - 1, probs - above)
    return projected.scatter_add_(-1, upper, above)


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Σ over the Z quantiles of the mean over targets `[…, Z']` of their Huber losses (Dabney et al., 2018, eq. 10)."""
    count = quantiles.shape[-1]
    fractions = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)
    losses = F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")
    weights = (fractions.unsqueeze(-1) - (errors.detach() < 0).to(errors.dtype)).abs()
    return (weights * losses).mean(-1).sum(-1)


def truncated_pool(quantiles: Tensor, dropped: int) -> Tensor:
    """All quantiles of the critics `[E, B, Z]` in order, `[B, E·Z − dropped]`, without the highest (TQC)."""
    pooled = quantiles.transpose(0, 1).flatten(1).sort(-1).values
    return pooled[:, : pooled.shape[1] - dropped]
