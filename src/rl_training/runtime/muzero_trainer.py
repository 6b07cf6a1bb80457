"""MuZero: the planner with PUCT and noise at the root."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training.algorithms.muzero import MuZeroParams
from rl_training.runtime.controls import ROOT_EXPLORATION_FRACTION
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.planner_learner import PlannerLearner
from rl_training.search.policy import PUCTPolicy, SearchPolicy


class MuZeroLearner(PlannerLearner):
    Params: ClassVar[type[MuZeroParams]] = MuZeroParams
    controls = (*PlannerLearner.controls, ROOT_EXPLORATION_FRACTION)

    @classmethod
    def policy_class(cls, params: Any) -> type[SearchPolicy]:
        return PUCTPolicy


train_muzero = trainer_for(MuZeroLearner)
