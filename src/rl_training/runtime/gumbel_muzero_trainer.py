"""Gumbel MuZero: the planner with sequential halving at the root; the temperature scales the Gumbel noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl_training.algorithms.gumbel_muzero import GumbelMuZero, GumbelMuZeroParams
from rl_training.envs.kinds import Kind
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.planner_learner import PlannerLearner
from rl_training.search.policy import GumbelPolicy, SearchPolicy


class GumbelMuZeroLearner(PlannerLearner):
    Params: ClassVar[type[GumbelMuZeroParams]] = GumbelMuZeroParams
    algorithm_class: ClassVar[type[GumbelMuZero]] = GumbelMuZero
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = {
        # Where all actions are worth nearly the same, a smaller weight of q-values trusts the policy, not their errors.
        "grids": {
            **PlannerLearner.defaults_by_kind["grids"],
            "c_scale": 0.01,
            "latent_size": 128,
            "hidden_size": 256,
        },
        # Found on Acrobot, whose goal is not seen in 30,000 steps with noise that is new at every step.
        "vectors": {
            "gamma": 0.99,
            "n_steps": 10,
            "fresh_bootstraps": True,
            "batch_size": 64,
            "replay_ratio": 0.5,
            "learning_rate": 2e-3,
            "value_coef": 1.0,
            "c_scale": 0.03,
            "noise_persistence": 0.7,
        },
    }

    @classmethod
    def policy_class(cls, params: Any) -> type[SearchPolicy]:
        return GumbelPolicy


train_gumbel_muzero = trainer_for(GumbelMuZeroLearner)
