"""Losses of the policy-gradient family and the diagnostics that are read beside them; all return scalars."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.replaceable import replaceable

ROUNDING = 1e-6  # what equal numbers may differ from their mean, relative to it


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip_coef: float) -> Tensor:
    """PPO's pessimistic policy loss (Schulman et al., 2017, eq. 7)."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def clipped_value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip_coef: float | None) -> Tensor:
    """Half the squared error; with `clip_coef`, the worse of it and that of the clipped step from `old_values`."""
    errors = (values - targets).square()
    if clip_coef is not None:
        clipped = old_values + (values - old_values).clamp(-clip_coef, clip_coef)
        errors = torch.max(errors, (clipped - targets).square())
    return 0.5 * errors.mean()


def approx_kl(log_ratio: Tensor) -> Tensor:
    """KL(old || new) from samples of old: Schulman's k3, unbiased and never negative (joschu.net/blog/kl-approx)."""
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(log_ratio: Tensor, clip_coef: float) -> Tensor:
    """The share of samples whose ratio lies outside the clip range."""
    return (log_ratio.expm1().abs() > clip_coef).float().mean()


@replaceable
@np.errstate(over="ignore", invalid="ignore")
def explained_variance(values: Tensor, targets: Tensor) -> np.floating:
    """1 - Var(targets - values) / Var(targets); 0 for constant targets, which have no variance to explain."""
    wanted, foretold = (column.detach().cpu().numpy().ravel() for column in (targets, values))
    if wanted.min() == wanted.max():
        return np.float32(0.0)
    return np.float32(1.0) - _square_deviations(wanted - foretold) / _square_deviations(wanted)


def _square_deviations(x: NDArray[np.floating]) -> np.floating:
    # NumPy's is several times as fast as torch's on a small rollout.
    deviations = x - x.sum() / len(x)
    return deviations @ deviations


def normalize(advantages: Tensor, mean_of: Callable[[Tensor], Tensor] = torch.mean) -> Tensor:
    """Mean 0 and (population) standard deviation 1; a constant or single advantage says nothing and becomes 0.

    `mean_of` may take the mean over more rows than are here.
    """
    mean = mean_of(advantages)
    centered = advantages - mean
    deviation = mean_of(centered.square()).sqrt()
    # Not deviation == 0: the rounded mean of equal numbers may differ from them.
    return torch.where(deviation <= ROUNDING * mean.abs(), 0.0, centered / (deviation + 1e-8))
