"""The forms in which a Q-network knows the return of an action: its mean, or one of two distributions.

Outputs are `[…, Z]`. `targets` makes of the outputs at the next states what the outputs are to become, and `losses`
compares the two, with how far off each row was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.ops.categorical import cross_entropy
from rl_training.ops.q_learning import project, quantile_huber


@dataclass(frozen=True)
class ReturnOptions:
    distribution: str
    num_atoms: int
    v_min: float
    v_max: float


class MeanReturn(nn.Module):
    size = 1

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.squeeze(-1)

    def targets(self, outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        """r + γ · outputs."""
        return torch.addcmul(rewards.unsqueeze(-1), discounts.unsqueeze(-1), outputs)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = F.smooth_l1_loss(outputs, targets, reduction="none").squeeze(-1)
        return losses, (outputs.detach() - targets).abs().squeeze(-1)


class QuantileReturn(MeanReturn):
    """Quantiles of the return (QR-DQN, Dabney et al., 2018)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = quantile_huber(outputs, targets)
        return losses, losses.detach()


class CategoricalReturn(nn.Module):
    """Logits over fixed returns (C51, Bellemare et al., 2017)."""

    support: Tensor

    def __init__(self, size: int, v_min: float, v_max: float) -> None:
        super().__init__()
        if not v_min < v_max:
            raise ConfigError(f"v_min: the lowest return, {v_min:g}, must be less than v_max, {v_max:g}")
        self.size = size
        self.register_buffer("support", torch.linspace(v_min, v_max, size), persistent=False)

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(-1) @ self.support

    def targets(self, outputs: Tensor, rewards: Tensor, discounts: Tensor) -> Tensor:
        returns = rewards.unsqueeze(-1) + discounts.unsqueeze(-1) * self.support
        return project(outputs.softmax(-1), returns, self.support)

    def losses(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = cross_entropy(outputs, targets)
        return losses, losses.detach()


def make_returns(options: ReturnOptions) -> MeanReturn | CategoricalReturn:
    kinds: dict[str, Callable[[], MeanReturn | CategoricalReturn]] = {
        "none": MeanReturn,
        "categorical": lambda: CategoricalReturn(options.num_atoms, options.v_min, options.v_max),
        "quantile": lambda: QuantileReturn(options.num_atoms),
    }
    return kinds[options.distribution]()
