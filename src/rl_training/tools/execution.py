"""The way of a policy's actions to the environment, as modules that graphs can hold: `env_actions` on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.models.actors import BoxActor
from rl_training.models.box_scale import BoxScale
from rl_training.models.dreamer import BoundedGaussianHead
from rl_training.models.heads import CategoricalHead, GaussianHead, SquashedHead


class ShiftedActions(nn.Module):
    """Choices, counted from the number that the environment counts from."""

    first: Tensor

    def __init__(self, first: Any) -> None:
        super().__init__()
        self.register_buffer("first", torch.tensor(np.asarray(first).tolist(), dtype=torch.int64))

    def forward(self, actions: Tensor) -> Tensor:
        return actions + self.first


class BoxActions(nn.Module):
    """Numbers, scaled around a centre, within the bounds and of their type."""

    centre: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, scaled: tuple[Any, Any], bounds: tuple[Any, Any], *, dtype: Any, shape: tuple[int, ...]) -> None:
        """`scaled` are the centre and the scale."""
        super().__init__()
        for name, value in zip(("centre", "scale", "low", "high"), (*scaled, *bounds), strict=True):
            self.register_buffer(name, torch.tensor(np.broadcast_to(np.asarray(value, bounds[0].dtype), shape)))
        self.shape, self.is_whole = shape, bool(np.issubdtype(dtype, np.integer))
        self.dtype = torch.from_numpy(np.zeros(0, dtype)).dtype

    def forward(self, actions: Tensor) -> Tensor:
        actions = self.centre + actions.reshape(-1, *self.shape) * self.scale
        actions = actions.round() if self.is_whole else actions
        return actions.clamp(self.low.to(actions.dtype), self.high.to(actions.dtype)).to(self.dtype)


def execution(policy: Any) -> nn.Module:
    """`policy.env_actions` on tensors."""
    if isinstance(policy, BoxActor):
        return _in_box(policy.scale)
    head = getattr(policy, "head", None)
    if head is None:
        return ShiftedActions(policy.first_action)
    if isinstance(head, CategoricalHead):
        return ShiftedActions(head.start)
    if isinstance(head, SquashedHead):
        return nn.Sequential(nn.Tanh(), _in_box(head.gaussian.scale))
    if isinstance(head, BoundedGaussianHead):
        return nn.Sequential(nn.Hardtanh(), _in_box(head.scale))
    return _in_box(head.scale) if isinstance(head, GaussianHead) else nn.Identity()


def _in_box(scale: BoxScale) -> BoxActions:
    scaled = (scale.first + scale.half, scale.half) if scale.is_scaled else (0.0, 1.0)
    return BoxActions(scaled, (scale.low, scale.high), dtype=scale.dtype, shape=scale.shape)
