"""ScaleZero: Gumbel MuZero's learner with a transformer, which learns from the observations along the whole unroll."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.scalezero import ScaleZero, ScaleZeroParams
from rl_training.data.replay import Rows
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, to_tensors
from rl_training.envs.kinds import Kind
from rl_training.envs.multitask import TASK
from rl_training.envs.types import Spaces
from rl_training.models.muzero import PlanningModel
from rl_training.models.options import options_from
from rl_training.models.scalezero import Context, ScaleZeroModel, ScaleZeroOptions
from rl_training.models.transformer import TransformerOptions
from rl_training.ops.unroll import ENDS, observed_states
from rl_training.runtime.gumbel_muzero_trainer import GumbelMuZeroLearner
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.planner_learner import PlannerLearner
from rl_training.runtime.solved_tasks import SolvedTasks, targets_of

ONE_TASK = ""  # as episodes name it


def task_means(weights: Tensor, tasks: Tensor) -> Tensor:
    """[B]: the mean weight of the rows that have the same task."""
    sums, counts = (torch.zeros(int(tasks.max()) + 1, device=weights.device) for _ in range(2))
    sums.index_add_(0, tasks, weights)
    counts.index_add_(0, tasks, torch.ones_like(weights))
    return (sums / counts.clamp_min(1.0))[tasks]


def split_by(shares: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """`size` windows by their shares, alike if all are 0. Those left over by rounding down go to the first of any."""
    weights = shares if shares.any() else np.ones_like(shares)
    # The smallest excess keeps a product such as 3 · (1 / 3) from being rounded down to one less.
    counts = np.floor(size * weights / weights.sum() + 1e-9).astype(np.int64)
    counts[weights.nonzero()[0][: size - counts.sum()]] += 1
    return counts


class ScaleZeroLearner(GumbelMuZeroLearner):
    Params = ScaleZeroParams
    algorithm_class = ScaleZero
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = PlannerLearner.defaults_by_kind
    state_parts = (*GumbelMuZeroLearner.state_parts, "solved_tasks")
    params: ScaleZeroParams
    algorithm: ScaleZero

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        targets, tasks = params.target_returns, self.algorithm.model.task_names or (ONE_TASK,)
        self.solved_tasks = None if targets is None else SolvedTasks(targets_of(tasks, targets))

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> ScaleZeroModel:
        parts = {"torso": cls.torso_options(params), "transformer": options_from(TransformerOptions, params)}
        return ScaleZeroModel(spaces, options_from(ScaleZeroOptions, params, **parts))

    @classmethod
    def max_depth(cls, params: Any) -> int:
        """No deeper than updates train what follows a context: further on there are no positions."""
        return min(params.max_depth or params.unroll_steps, params.unroll_steps)

    def store(self, rollout: Rollout) -> None:
        """Hears first which episodes have ended: enough tasks that are newly solved begin the next stage."""
        solved, algorithm = self.solved_tasks, self.algorithm
        if solved is not None:
            solved.add(rollout.episodes, stage=algorithm.stage)
            if solved.ends_stage(algorithm.stage, remaining=algorithm.remaining_stages):
                algorithm.enter_stage(algorithm.stage + 1)
            self.note(solved_tasks=solved.count())
        super().store(rollout)

    @property
    def window_steps(self) -> int:
        """A window's n-th state sees the n before it: those of a full context have an unroll behind them, too."""
        return self.params.context_steps + self.params.unroll_steps

    def states_before(self, rows: Rows, model: PlanningModel) -> Tensor:
        """Encodes what the replay has of the steps before the rows."""
        assert isinstance(model, ScaleZeroModel)
        if not model.context_steps:
            return super().states_before(rows, model)
        kept, steps, lengths = np.ones(len(rows[0]), dtype=bool), [rows], np.zeros(len(rows[0]), dtype=np.int64)
        for _ in range(model.context_steps):
            before, same_episode = self.replay.predecessors(steps[0])
            kept = kept & same_episode
            steps, lengths = [before, *steps], lengths + kept
        streams, places = (np.stack(part) for part in zip(*steps[:-1], strict=True))
        columns = {name: self.replay.column(name, (streams, places)) for name in ("obs", "actions")}
        known = to_tensors(columns | {"lengths": lengths}, model.device)
        latents = model.represent(flatten_time(known["obs"]))[0].unflatten(0, streams.shape)
        return Context(latents.transpose(0, 1), known["actions"].t(), known["lengths"]).packed()

    def draw(self, size: int) -> tuple[Rows, NDArray[np.float64]]:
        """Windows of every task by its share, and by their priorities within it; chance has what is left over."""
        if not self.algorithm.model.task_names:
            return super().draw(size)
        streams, rng = self.replay.drawable_streams(), self.rng.generator
        tasks = self.replay.column("obs", self.replay.newest(streams))[TASK]
        present = rng.permutation(np.unique(tasks))
        drawn = [
            self.replay.draw(count, rng, among=streams[tasks == task])
            for task, count in zip(present, split_by(self.shares(present), size), strict=True)
        ]
        (of_streams, places), chances = zip(*(rows for rows, _ in drawn), strict=True), [c for _, c in drawn]
        return (np.concatenate(of_streams), np.concatenate(places)), np.concatenate(chances)

    def shares(self, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much of a batch each task should have, up to a factor: a solved one `solved_share`, any other 1."""
        solved, names = self.solved_tasks, self.algorithm.model.task_names
        if solved is None:
            return np.ones(len(tasks))
        return np.array([self.params.solved_share if solved.is_solved(names[task]) else 1.0 for task in tasks])

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """Adds the observations of all states; a state without one teaches nothing."""
        batch = super().batch(rows, chances)
        (streams, places), written = self.replay.following(rows, self.window_steps + 1)
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
