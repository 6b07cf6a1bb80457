"""Dreamer: everything goes into a replay, from which a world model learns, in which the policy learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.dreamer import Dreamer
from rl_training.data.replay import StreamReplay, arrivals
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.runtime.controls import ENT_COEF, GAE_LAMBDA, GAMMA, LEARNING_RATE, Control
from rl_training.runtime.learner import Learner
from rl_training.runtime.params import Params
from rl_training.runtime.workflows import trainer_for

REPLAY_RATIO = Control("replay_ratio")
DYN_SCALE = Control("dyn_scale")
REP_SCALE = Control("rep_scale")
FREE_NATS = Control("free_nats")
REPLAY_VALUE_SCALE = Control("replay_value_scale")
HORIZON = Control("horizon", low=1.0, integer=True)
OF_THE_ALGORITHM = (
    "learning_rate",
    "entropy_coef",
    "replay_ratio",
    "dyn_scale",
    "rep_scale",
    "free_nats",
    "replay_value_scale",
    "gamma",
    "gae_lambda",
    "horizon",
    "slow_critic_rate",
    "agc",
    "optimizer",
    "optimizer_eps",
)


class DreamerParams(Params):
    size: Literal["nano", "xxs", "xs", "s", "m", "l", "xl"] = Field("xs", description="of all networks")
    num_bins: PositiveInt = Field(255, description="of the reward's and the value's distributions")
    rollout_steps: PositiveInt = 16
    batch_size: PositiveInt = Field(16, description="sequences in an update")
    sequence_length: PositiveInt = Field(64, ge=2, description="observations in each of them")
    replay_ratio: float = Field(32.0, ge=0, description="observations replayed for each step of the environments")
    replay_capacity: PositiveInt = Field(1_000_000, description="observations kept")
    store_replay: bool = Field(True, description="in checkpoints; without it a resumed run fills its replay anew")
    learning_starts: int = Field(1_000, ge=0, description="observations in the replay before the first update")
    learning_rate: PositiveFloat = 4e-5
    optimizer: Literal["laprop", "adam"] = "laprop"
    optimizer_eps: PositiveFloat = 1e-20
    agc: PositiveFloat = Field(0.3, description="largest gradient of a tensor, relative to the tensor")
    entropy_coef: float = Field(3e-4, ge=0)
    dyn_scale: float = Field(1.0, ge=0, description="of the loss that teaches the prior")
    rep_scale: float = Field(0.1, ge=0, description="of the loss that makes the posterior predictable")
    free_nats: float = Field(1.0, ge=0, description="divergence that costs nothing")
    replay_value_scale: float = Field(0.3, ge=0, description="of the critic's loss on replayed states")
    gamma: float = Field(0.997, ge=0, le=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)
    horizon: PositiveInt = Field(15, description="imagined steps")
    slow_critic_rate: float = Field(0.02, gt=0, le=1)


class DreamerLearner(Learner):
    Params: ClassVar[type[DreamerParams]] = DreamerParams
    controls = (
        LEARNING_RATE,
        ENT_COEF.spelled("entropy_coef"),
        REPLAY_RATIO,
        DYN_SCALE,
        REP_SCALE,
        FREE_NATS,
        REPLAY_VALUE_SCALE,
        GAMMA,
        GAE_LAMBDA,
        HORIZON,
    )
    bears_stale_data = True
    state_parts = ("algorithm", "rng", "stored_replay")
    state_scalars = ("updates_owed",)
    params: DreamerParams
    algorithm: Dreamer

    def __init__(self, params: DreamerParams, spaces: Spaces, **options: Any) -> None:
        super().__init__(params, spaces, **options)
        self.replay = StreamReplay(params.replay_capacity, self.num_envs)
        self.stored_replay = self.replay if params.store_replay else None
        self.updates_owed = 0.0
        if self.replay.places <= params.sequence_length:
            raise ConfigError(f"replay_capacity: too small for {self.num_envs} sequences of {params.sequence_length}")

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> Dreamer:
        model = DreamerModel(spaces, SIZES[params.size], num_bins=params.num_bins)
        return Dreamer(model, **{name: getattr(params, name) for name in OF_THE_ALGORITHM})

    @property
    def rollout_steps(self) -> int:
        return self.params.rollout_steps

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        self.replay.add(rollout)
        if not self.has_enough:
            return
        replayed = self.params.batch_size * self.params.sequence_length
        self.updates_owed += rollout.num_steps * self.algorithm.replay_ratio / replayed
        for _ in range(int(self.updates_owed)):
            self.updates_owed -= 1.0
            yield self.algorithm.update(self.batch(), global_step=global_step)

    @property
    def has_enough(self) -> bool:
        filled = len(self.replay) >= self.params.learning_starts
        return filled and self.replay.num_windows(self.params.sequence_length + 1) > 0

    def batch(self) -> dict[str, Tree]:
        """One row more than the sequence has observations: what led to the first is in the row before it."""
        window = self.replay.sample(self.params.batch_size, self.params.sequence_length + 1, self.rng.generator)
        return tree_map(lambda leaf: leaf.to(self.algorithm.policy.device), arrivals(window))


train_dreamer = trainer_for(DreamerLearner)
