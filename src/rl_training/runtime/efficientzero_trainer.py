"""EfficientZero: MuZero's learner, or Gumbel MuZero's, with value prefixes as rewards, real observations to agree with,
and shorter bootstraps for older rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from rl_training.algorithms.efficientzero import EfficientZero
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.types import Spaces
from rl_training.models.efficientzero import EfficientZeroModel, EfficientZeroOptions
from rl_training.ops.unroll import value_prefixes
from rl_training.runtime.gumbel_muzero_trainer import GumbelMuZeroParams, gumbel_policy
from rl_training.runtime.muzero_trainer import MuZeroLearner, MuZeroParams, puct_policy
from rl_training.runtime.planner_learner import PlannerParams
from rl_training.runtime.workflows import trainer_for
from rl_training.search.policy import SearchPolicy


class EfficientZeroParams(MuZeroParams, GumbelMuZeroParams):
    num_simulations: PositiveInt = 25
    search_rule: Literal["puct", "gumbel"] = Field("puct", description="of the first version of EfficientZero, or V2's")
    reanalyse_fraction: float = Field(
        1.0, ge=0, le=1, description="replayed rows searched again, as a share of a batch"
    )
    consistency_coef: float = Field(2.0, ge=0)
    projection_size: PositiveInt = Field(128, description="of the consistency heads")
    lstm_size: PositiveInt = Field(64, description="of the value prefix")
    lstm_horizon: PositiveInt = Field(5, description="steps after which the value prefix begins anew")
    correction_interval: PositiveInt | None = 10_000

    def idle(self) -> dict[str, str]:
        """The other rule's parameters."""
        other = GumbelMuZeroParams if self.search_rule == "puct" else MuZeroParams
        names = set(other.model_fields) - set(PlannerParams.model_fields)
        return dict.fromkeys(sorted(names), f"with search_rule {self.search_rule!r}")


class EfficientZeroLearner(MuZeroLearner):
    Params = EfficientZeroParams
    algorithm_class = EfficientZero
    params: EfficientZeroParams

    @classmethod
    def algorithm_options(cls, params: Any) -> dict[str, Any]:
        return super().algorithm_options(params) | {"consistency_coef": params.consistency_coef}

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> SearchPolicy:
        build = puct_policy if params.search_rule == "puct" else gumbel_policy
        return build(cls.build_model(params, spaces), params, **cls.search_options(params, spaces))

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> EfficientZeroModel:
        names = ("lstm_size", "lstm_horizon", "projection_size")
        options = cls.model_options(params) | {name: getattr(params, name) for name in names}
        return EfficientZeroModel(spaces, EfficientZeroOptions(**options))

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        batch = super().batch(rows, chances)
        (streams, places), _ = self.replay.following(rows, self.params.unroll_steps + 1)
        rewards = batch["reward_targets"].cpu().numpy()
        added = {
            "next_obs": self.replay.column("obs", (streams[1:], places[1:])),
            "reward_targets": value_prefixes(rewards, self.params.lstm_horizon),
        }
        return batch | to_tensors(added, self.algorithm.policy.device)


train_efficientzero = trainer_for(EfficientZeroLearner)
