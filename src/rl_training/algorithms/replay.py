"""The parameters of algorithms that learn from a replay, and what a prioritised update answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field, PositiveInt
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.params import Params


@dataclass(frozen=True)
class PrioritizedResult(UpdateResult):
    """`errors` `[B]` say how far off each drawn row was: the priorities that the replay gives them."""

    errors: Tensor = field(kw_only=True)


class ReplayParams(Params):
    rollout_steps: PositiveInt = Field(8, description="rows of every environment in a rollout")
    batch_size: PositiveInt = Field(256, description="rows or windows in an update")
    replay_capacity: PositiveInt = Field(100_000, description="rows that are kept")
    store_replay: bool = Field(True, description="in checkpoints; without it a resumed run fills its replay anew")
    learning_starts: int = Field(1_000, ge=0, description="rows in the replay before the first update")
    random_steps: int = Field(0, ge=0, description="environment steps at the beginning that act at random")
