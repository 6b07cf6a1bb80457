"""EfficientZero (Ye et al., 2021, arXiv:2111.00210): MuZero with consistency, a value prefix and corrected targets."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.base import Batch
from rl_training.algorithms.gumbel_muzero import GumbelMuZeroParams
from rl_training.algorithms.muzero import MuZero, MuZeroParams, PlannerParams, unroll_scale
from rl_training.data.trees import flatten_time
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.models.muzero import Unrolled


def consistency_loss(imagined: Tensor, observed: Tensor, known: Tensor) -> Tensor:
    """1 − cosine of predicted and observed projections `[K, B, P]`, 0 where nothing was observed."""
    return (1.0 - F.cosine_similarity(imagined, observed, dim=-1)) * known


class EfficientZeroParams(MuZeroParams, GumbelMuZeroParams):
    num_simulations: PositiveInt = 25
    search_rule: Literal["puct", "gumbel"] = Field("puct", description="of the first version of EfficientZero, or V2's")
    reanalyse_fraction: float = Field(
        1.0, ge=0, le=1, description="replayed rows searched again, as a share of a batch"
    )
    consistency_coef: float = Field(2.0, ge=0, description="weight of the consistency of imagined with observed states")
    projection_size: PositiveInt = Field(128, description="of the consistency heads")
    lstm_size: PositiveInt = Field(64, description="of the value prefix")
    lstm_horizon: PositiveInt = Field(5, description="steps after which the value prefix begins anew")
    correction_interval: PositiveInt | None = 10_000

    def idle(self) -> dict[str, str]:
        """The other rule's parameters."""
        other = GumbelMuZeroParams if self.search_rule == "puct" else MuZeroParams
        names = set(other.model_fields) - set(PlannerParams.model_fields)
        return super().idle() | dict.fromkeys(sorted(names), f"with search_rule {self.search_rule!r}")


class EfficientZero(MuZero):
    params: EfficientZeroParams

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
        return total + self.params.consistency_coef * consistency, parts | {"consistency_loss": consistency}
