"""EfficientZero: MuZero's learner, or Gumbel MuZero's, with value prefixes as rewards, real observations to agree with,
and shorter bootstraps for older rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.efficientzero import EfficientZero, EfficientZeroParams
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.types import Spaces
from rl_training.models.efficientzero import EfficientZeroModel, EfficientZeroOptions
from rl_training.models.options import options_from
from rl_training.ops.unroll import value_prefixes
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.muzero_trainer import MuZeroLearner
from rl_training.search.policy import GumbelPolicy, PUCTPolicy, SearchPolicy


class EfficientZeroLearner(MuZeroLearner):
    Params = EfficientZeroParams
    algorithm_class = EfficientZero
    params: EfficientZeroParams

    @classmethod
    def policy_class(cls, params: Any) -> type[SearchPolicy]:
        return PUCTPolicy if params.search_rule == "puct" else GumbelPolicy

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> EfficientZeroModel:
        options = options_from(EfficientZeroOptions, params, torso=cls.torso_options(params))
        return EfficientZeroModel(spaces, options)

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
