"""Gumbel MuZero: the planner with sequential halving at the root; the temperature scales the Gumbel noise."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training.algorithms.gumbel_muzero import GumbelMuZero, GumbelMuZeroParams
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.planner_learner import PlannerLearner
from rl_training.search.policy import GumbelPolicy, SearchPolicy


class GumbelMuZeroLearner(PlannerLearner):
    Params: ClassVar[type[GumbelMuZeroParams]] = GumbelMuZeroParams
    algorithm_class: ClassVar[type[GumbelMuZero]] = GumbelMuZero

    @classmethod
    def policy_class(cls, params: Any) -> type[SearchPolicy]:
        return GumbelPolicy


train_gumbel_muzero = trainer_for(GumbelMuZeroLearner)
