"""Gumbel MuZero (Danihelka et al., 2022): MuZero's update on the targets of another search.

The policy learns softmax(logits + σ(completed q)), an improvement on the policy that was searched with, however few
the simulations; visits are not asked. How that is searched for is `search.policy.GumbelPolicy`.
"""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.muzero import MuZero, PlannerParams
from rl_training.search.policy import GumbelPolicy


class GumbelMuZeroParams(PlannerParams):
    num_simulations: PositiveInt = 16
    max_considered_actions: PositiveInt = Field(16, description="actions that the root's search begins with")
    c_visit: float = Field(50.0, ge=0)
    c_scale: PositiveFloat = 0.1


class GumbelMuZero(MuZero):
    policy: GumbelPolicy
