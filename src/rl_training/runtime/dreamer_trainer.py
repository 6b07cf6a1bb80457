"""Dreamer: everything goes into a replay, from which a world model learns, in which the policy learns."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.dreamer import Dreamer, DreamerParams
from rl_training.data.arrivals import arrivals
from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.runtime.controls import ENT_COEF, GAE_LAMBDA, GAMMA, LEARNING_RATE, Control
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.replay_learner import ReplayLearner

TRAIN_RATIO = Control("train_ratio")
DYN_SCALE = Control("dyn_scale")
REP_SCALE = Control("rep_scale")
FREE_NATS = Control("free_nats")
REPLAY_VALUE_SCALE = Control("replay_value_scale")
HORIZON = Control("horizon", low=1.0, integer=True)


class DreamerLearner(ReplayLearner):
    Params: ClassVar[type[DreamerParams]] = DreamerParams
    controls = (
        LEARNING_RATE,
        ENT_COEF.spelled("entropy_coef"),
        TRAIN_RATIO,
        DYN_SCALE,
        REP_SCALE,
        FREE_NATS,
        REPLAY_VALUE_SCALE,
        GAMMA,
        GAE_LAMBDA,
        HORIZON,
    )
    reads = ()
    params: DreamerParams
    algorithm: Dreamer

    def __init__(self, params: DreamerParams, spaces: Spaces, **options: Any) -> None:
        super().__init__(params, spaces, **options)
        if self.replay.places <= params.sequence_length:
            raise ConfigError(f"replay_capacity: too small for {self.num_envs} sequences of {params.sequence_length}")

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> Dreamer:
        names = ("num_bins", "bin_limit", "image_layout", "torso", "torso_kwargs")
        networks = {name: getattr(params, name) for name in names}
        return Dreamer(DreamerModel(spaces, SIZES[params.size], **networks), params)

    @property
    def updates_per_step(self) -> float:
        return self.params.train_ratio / (self.params.batch_size * self.params.sequence_length)

    @property
    def has_enough(self) -> bool:
        return super().has_enough and self.replay.num_windows(self.params.sequence_length + 1) > 0

    def update(self) -> UpdateResult:
        return self.algorithm.update(self.batch())

    def batch(self) -> dict[str, Tree]:
        """One row more than the sequence has observations: what led to the first is in the row before it."""
        window = self.replay.sample(self.params.batch_size, self.params.sequence_length + 1, self.rng.generator)
        return tree_map(lambda leaf: leaf.to(self.algorithm.policy.device), arrivals(window))


train_dreamer = trainer_for(DreamerLearner)
