"""ScaleZero: Gumbel MuZero's learner with a transformer, which learns from the observations along the whole unroll."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.scalezero import ScaleZero, ScaleZeroParams
from rl_training.data.replay import Rows
from rl_training.data.trees import Tree, to_tensors
from rl_training.envs.multitask import TASK
from rl_training.envs.types import Spaces
from rl_training.models.options import options_from
from rl_training.models.scalezero import ScaleZeroModel, ScaleZeroOptions
from rl_training.models.transformer import TransformerOptions
from rl_training.ops.unroll import ENDS, observed_states
from rl_training.runtime.gumbel_muzero_trainer import GumbelMuZeroLearner
from rl_training.runtime.manager import trainer_for


def task_means(weights: Tensor, tasks: Tensor) -> Tensor:
    """[B]: the mean weight of the rows that have the same task."""
    sums, counts = (torch.zeros(int(tasks.max()) + 1, device=weights.device) for _ in range(2))
    sums.index_add_(0, tasks, weights)
    counts.index_add_(0, tasks, torch.ones_like(weights))
    return (sums / counts.clamp_min(1.0))[tasks]


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

    def draw(self, size: int) -> tuple[Rows, NDArray[np.float64]]:
        """Equal numbers of windows of every task, by their priorities within it; chance has what is left over."""
        if not self.algorithm.model.task_names:
            return super().draw(size)
        streams, rng = self.replay.drawable_streams(), self.rng.generator
        tasks = self.replay.column("obs", self.replay.newest(streams))[TASK]
        parts = np.array_split(np.arange(size), len(np.unique(tasks)))
        drawn = [
            self.replay.draw(len(part), rng, among=streams[tasks == task])
            for part, task in zip(parts, rng.permutation(np.unique(tasks)), strict=True)
        ]
        (of_streams, places), chances = zip(*(rows for rows, _ in drawn), strict=True), [c for _, c in drawn]
        return (np.concatenate(of_streams), np.concatenate(places)), np.concatenate(chances)

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """Adds the observations of all states; a state without one teaches nothing."""
        batch = super().batch(rows, chances)
        (streams, places), written = self.replay.following(rows, self.params.unroll_steps + 1)
        window = {name: self.replay.column(name, (streams, places)) for name in ENDS}
        at, known = observed_states(window, written)
        observed = (streams, np.take_along_axis(places, at, axis=0))
        added = to_tensors({"obs": self.replay.column("obs", observed), "has_obs": known}, self.algorithm.policy.device)
        has_obs = added["has_obs"]
        weights = batch["weights"]
        if self.algorithm.model.task_names:  # unequal priorities in one task do not weigh against another
            weights = weights / task_means(weights, added["obs"][TASK][0])
        masks = {"has_value": batch["has_value"] & has_obs, "has_reward": batch["has_reward"] & has_obs[:-1]}
        return batch | added | masks | {"weights": weights}


train_scalezero = trainer_for(ScaleZeroLearner)
