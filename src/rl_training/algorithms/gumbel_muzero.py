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
    c_visit: float = Field(50.0, ge=0, description="visits added to the most visited action's in the scale of q-values")
    c_scale: PositiveFloat = Field(0.1, description="weight of q-values against the policy's logits")
    noise_persistence: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="chance that an environment keeps its Gumbel noise for another step: what is tried is tried "
        "for a while",
    )

    def idle(self) -> dict[str, str]:
        """In a game for two, noise that is kept would pass from one player to the other."""
        return super().idle() | ({"noise_persistence": "with players 2"} if self.players == 2 else {})


class GumbelMuZero(MuZero):
    policy: GumbelPolicy
