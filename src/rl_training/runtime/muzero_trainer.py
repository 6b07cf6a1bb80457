"""MuZero: the planner with PUCT and noise at the root."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveFloat

from rl_training.envs.types import Spaces
from rl_training.models.muzero import PlanningModel
from rl_training.runtime.controls import ROOT_EXPLORATION_FRACTION
from rl_training.runtime.planner_learner import PlannerLearner, PlannerParams
from rl_training.runtime.workflows import trainer_for
from rl_training.search.policy import PUCTPolicy, SearchPolicy


class MuZeroParams(PlannerParams):
    root_dirichlet_alpha: PositiveFloat = 0.3
    root_exploration_fraction: float = Field(0.25, ge=0, le=1)
    pb_c_init: PositiveFloat = 1.25
    pb_c_base: PositiveFloat = 19652.0


class MuZeroLearner(PlannerLearner):
    Params: ClassVar[type[MuZeroParams]] = MuZeroParams
    controls = (*PlannerLearner.controls, ROOT_EXPLORATION_FRACTION)

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> SearchPolicy:
        return puct_policy(cls.build_model(params, spaces), params, **cls.search_options(params, spaces))


def puct_policy(model: PlanningModel, params: MuZeroParams, **options: Any) -> PUCTPolicy:
    names = ("root_dirichlet_alpha", "root_exploration_fraction", "pb_c_init", "pb_c_base")
    return PUCTPolicy(model, **{name: getattr(params, name) for name in names}, **options)


train_muzero = trainer_for(MuZeroLearner)
