"""Gumbel MuZero: the planner with sequential halving at the root; the temperature scales the Gumbel noise."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.gumbel_muzero import GumbelMuZero
from rl_training.envs.types import Spaces
from rl_training.models.muzero import PlanningModel
from rl_training.runtime.planner_learner import PlannerLearner, PlannerParams
from rl_training.runtime.workflows import trainer_for
from rl_training.search.policy import GumbelPolicy, SearchPolicy


class GumbelMuZeroParams(PlannerParams):
    num_simulations: PositiveInt = 16
    max_considered_actions: PositiveInt = Field(16, description="actions that the root's search begins with")
    c_visit: float = Field(50.0, ge=0)
    c_scale: PositiveFloat = 0.1


class GumbelMuZeroLearner(PlannerLearner):
    Params: ClassVar[type[GumbelMuZeroParams]] = GumbelMuZeroParams
    algorithm_class: ClassVar[type[GumbelMuZero]] = GumbelMuZero

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> SearchPolicy:
        return gumbel_policy(cls.build_model(params, spaces), params, **cls.search_options(params, spaces))


def gumbel_policy(model: PlanningModel, params: GumbelMuZeroParams, **options: Any) -> GumbelPolicy:
    names = ("max_considered_actions", "c_visit", "c_scale")
    return GumbelPolicy(model, **{name: getattr(params, name) for name in names}, **options)


train_gumbel_muzero = trainer_for(GumbelMuZeroLearner)
