"""Gumbel MuZero (Danihelka et al., 2022): MuZero's update on the targets of another search.

The policy learns softmax(logits + σ(completed q)), an improvement on the policy that was searched with, however few
the simulations; visits are not asked. How that is searched for is `search.policy.GumbelPolicy`.
"""

from __future__ import annotations

from rl_training.algorithms.muzero import MuZero
from rl_training.search.policy import GumbelPolicy


class GumbelMuZero(MuZero):
    policy: GumbelPolicy
