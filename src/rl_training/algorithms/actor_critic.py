"""What the algorithms with a policy, a value function and one optimizer have in common."""

from __future__ import annotations

from typing import ClassVar

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.models.actor_critic import ActorCritic


class ActorCriticAlgorithm(Algorithm):
    """Holds the scalars that controls move; `gamma` and `gae_lambda` are read by whoever computes advantages."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer")
    policy: ActorCritic

    def __init__(
        self,
        policy: ActorCritic,
        *,
        learning_rate: float,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        adam_eps: float = 1e-5,
        optimizer: str = "adam",
    ) -> None:
        self.policy = policy
        self.optimizer = FlatOptimizer(policy.parameters(), learning_rate=learning_rate, eps=adam_eps, kind=optimizer)
        self.ent_coef = ent_coef
        self.vf_coef = vf_coef
        self.max_grad_norm = max_grad_norm
        self.gamma = gamma
        self.gae_lambda = gae_lambda
