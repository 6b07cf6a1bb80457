"""Categorical variables `[..., K]` as probabilities: mixing, sampling with a gradient, divergence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rl_training.ops.transforms import upper_neighbours
from rl_training.replaceable import replaceable

UNIFORM_SHARE = 0.01


@replaceable
def unimix(logits: Tensor) -> Tensor:
    """Probabilities of which a share is uniform, so that no logarithm of them is infinite (Hafner et al., 2023)."""
    return logits.softmax(-1) * (1.0 - UNIFORM_SHARE) + UNIFORM_SHARE / logits.shape[-1]


def one_hot_sample(probs: Tensor, uniform: Tensor) -> Tensor:
    """The class in whose share of [0, 1) `uniform` `[..., 1]` lies, as a one-hot vector without gradient."""
    classes = torch.arange(probs.shape[-1], device=probs.device)
    # The last bound may be rounded to less than 1: what lies beyond it still belongs to the last class.
    chosen = (probs.detach().cumsum(-1)[..., :-1] <= uniform).sum(-1, keepdim=True)
    return (classes == chosen).to(probs.dtype)


def one_hot_mode(probs: Tensor) -> Tensor:
    classes = torch.arange(probs.shape[-1], device=probs.device)
    return (classes == probs.argmax(-1, keepdim=True)).to(probs.dtype)


def straight_through(sample: Tensor, probs: Tensor) -> Tensor:
    """The sample, with the gradient of its probabilities (Bengio et al., 2013)."""
    return sample + (probs - probs.detach())


def categorical_kl(probs: Tensor, log_probs: Tensor, other_log_probs: Tensor) -> Tensor:
    """KL(p ‖ q) of `G` independent variables `[..., G, K]`, summed over them."""
    return (probs * (log_probs - other_log_probs)).sum((-2, -1))


def two_hot_cross_entropy(log_probs: Tensor, targets: Tensor, support: Tensor) -> Tensor:
    """−Σ two_hot(targets) · log_probs `[..., N]`, reading only the two bins around each target."""
    upper, weight = upper_neighbours(targets, support)
    near = log_probs.gather(-1, torch.stack([upper - 1, upper], dim=-1))
    return torch.lerp(near[..., 0], near[..., 1], weight).neg()


def symmetric_mean(probs: Tensor, support: Tensor) -> Tensor:
    """The mean of a `support` `[N]` that mirrors itself; exactly 0 where `probs` `[..., N]` does too."""
    half = len(support) // 2
    # Opposite bins are subtracted first: bins near 1e8 would drown a mean near 0.
    surplus = probs[..., -half:] - probs[..., :half].flip(-1)
    return surplus @ support[-half:]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−Σ target log softmax(logits) over the last axis."""
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1)
