"""EfficientZero (Ye et al., 2021, arXiv:2111.00210): MuZero with consistency, a value prefix and corrected targets."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from rl_training.algorithms.base import Batch
from rl_training.algorithms.muzero import MuZero, unroll_scale
from rl_training.data.trees import flatten_time
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.models.muzero import Unrolled
from rl_training.search.policy import SearchPolicy


def consistency_loss(imagined: Tensor, observed: Tensor, known: Tensor) -> Tensor:
    """1 − cosine of predicted and observed projections `[K, B, P]`, 0 where nothing was observed."""
    return (1.0 - F.cosine_similarity(imagined, observed, dim=-1)) * known


class EfficientZero(MuZero):
    def __init__(self, policy: SearchPolicy, *, consistency_coef: float = 2.0, **options: Any) -> None:
        super().__init__(policy, **options)
        self.consistency_coef = consistency_coef

    @property
    def model(self) -> EfficientZeroModel:
        assert isinstance(self.policy.model, EfficientZeroModel)
        return self.policy.model

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """`reward_targets` are value prefixes; `next_obs` `[K, B, …]` are what the imagined steps really led to."""
        total, parts = super().loss(unrolled, batch)
        shape = batch["actions"].shape
        imagined = self.model.project_online(unrolled.latents[1:].flatten(0, 1)).unflatten(0, shape)
        observed = self.model.project_observed(flatten_time(batch["next_obs"])).unflatten(0, shape)
        errors = consistency_loss(imagined, observed, batch["has_state"][1:])
        scale = unroll_scale(len(errors), imagined)[1:] * batch["weights"]
        consistency = (errors * scale).sum(0).mean()
        return total + self.consistency_coef * consistency, parts | {"consistency_loss": consistency}
