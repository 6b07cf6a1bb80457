"""ScaleZero: Gumbel MuZero's learner with a transformer, which learns from the observations along the whole unroll."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from rl_training.algorithms.scalezero import ScaleZero
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.types import Spaces
from rl_training.models.scalezero import ScaleZeroModel, ScaleZeroOptions
from rl_training.models.transformer import TransformerOptions
from rl_training.ops.unroll import observed_states
from rl_training.runtime.gumbel_muzero_trainer import GumbelMuZeroLearner, GumbelMuZeroParams
from rl_training.runtime.workflows import trainer_for

ENDS = ("terminated", "truncated", "is_first", "is_last")


class ScaleZeroParams(GumbelMuZeroParams):
    num_simulations: PositiveInt = 8
    fresh_bootstraps: bool = True
    latent_size: PositiveInt = Field(64, description="width of the transformer")
    hidden_size: PositiveInt = Field(128, description="of an expert")
    num_layers: PositiveInt = 2
    num_heads: PositiveInt = 2
    num_experts: PositiveInt = 4
    experts_per_token: PositiveInt = Field(1, description="besides the one that all tokens share")
    latent_coef: float = Field(10.0, ge=0, description="weight of the error of imagined latents")
    balance_coef: float = Field(0.01, ge=0, description="weight of using all experts alike")
    adapter_stages: int = Field(0, ge=0, description="stages of low-rank changes to a frozen transformer")
    adapter_rank: PositiveInt = 8
    stage_updates: PositiveInt = Field(5_000, description="updates before the next stage begins")

    @model_validator(mode="after")
    def _sizes_fit(self) -> ScaleZeroParams:
        if self.latent_size % self.num_heads:
            raise ValueError(f"latent_size {self.latent_size} is not a multiple of num_heads {self.num_heads}")
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"experts_per_token {self.experts_per_token} exceeds num_experts {self.num_experts}")
        return self


class ScaleZeroLearner(GumbelMuZeroLearner):
    Params = ScaleZeroParams
    algorithm_class = ScaleZero
    params: ScaleZeroParams

    @classmethod
    def algorithm_options(cls, params: Any) -> dict[str, Any]:
        names = ("latent_coef", "balance_coef", "adapter_stages", "stage_updates")
        return super().algorithm_options(params) | {name: getattr(params, name) for name in names}

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> ScaleZeroModel:
        names = TransformerOptions.__dataclass_fields__
        transformer = TransformerOptions(**{name: getattr(params, name) for name in names})
        options = cls.model_options(params) | {"transformer": transformer, "context": params.unroll_steps}
        return ScaleZeroModel(spaces, ScaleZeroOptions(**options))

    @classmethod
    def search_options(cls, params: Any, spaces: Spaces) -> dict[str, Any]:
        """No deeper than the sequences that updates train: further on there are no positions."""
        depth = min(params.max_depth or params.unroll_steps, params.unroll_steps)
        return super().search_options(params, spaces) | {"max_depth": depth}

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """With the observations of all states; what has none teaches nothing."""
        batch = super().batch(rows, chances)
        (streams, places), written = self.replay.following(rows, self.params.unroll_steps + 1)
        window = {name: self.replay.column(name, (streams, places)) for name in ENDS}
        at, known = observed_states(window, written)
        observed = (streams, np.take_along_axis(places, at, axis=0))
        added = to_tensors({"obs": self.replay.column("obs", observed), "has_obs": known}, self.algorithm.policy.device)
        has_obs = added["has_obs"]
        masks = {"has_value": batch["has_value"] & has_obs, "has_reward": batch["has_reward"] & has_obs[:-1]}
        return batch | added | masks


train_scalezero = trainer_for(ScaleZeroLearner)
