"""ScaleZero: Gumbel MuZero's learner with a transformer, which learns from the observations along the whole unroll."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.scalezero import ScaleZero, ScaleZeroParams
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.types import Spaces
from rl_training.models.options import options_from
from rl_training.models.scalezero import ScaleZeroModel, ScaleZeroOptions
from rl_training.models.transformer import TransformerOptions
from rl_training.ops.unroll import ENDS, observed_states
from rl_training.runtime.gumbel_muzero_trainer import GumbelMuZeroLearner
from rl_training.runtime.manager import trainer_for


class ScaleZeroLearner(GumbelMuZeroLearner):
    Params = ScaleZeroParams
    algorithm_class = ScaleZero
    params: ScaleZeroParams

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> ScaleZeroModel:
        parts = {"torso": cls.torso_options(params), "transformer": options_from(TransformerOptions, params)}
        return ScaleZeroModel(spaces, options_from(ScaleZeroOptions, params, context=params.unroll_steps, **parts))

    @classmethod
    def max_depth(cls, params: Any) -> int:
        """No deeper than the sequences that updates train: further on there are no positions."""
        return min(params.max_depth or params.unroll_steps, params.unroll_steps)

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """Adds the observations of all states; a state without one teaches nothing."""
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
