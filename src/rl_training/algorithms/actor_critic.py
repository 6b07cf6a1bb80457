"""What the algorithms with a policy, a value function and one optimizer have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.base import Algorithm, Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.models.actor_critic import ActorCritic, FusedPolicy
from rl_training.ops.fused import LossGradient, categorical, categorical_gradient


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

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite stops the run with the metric's name
    def descend_fused(
        self,
        fused: FusedPolicy,
        inputs: NDArray[np.float32],
        batch: Batch,
        gradient_of: Callable[..., LossGradient],
        columns: Sequence[str],
        options: Mapping[str, Any],
    ) -> UpdateResult:
        """A gradient step without autograd, for policies that have a NumPy form; the same to rounding."""
        policy = categorical(fused.actor.forward(inputs), batch["actions"].numpy())
        values = fused.critic.forward(inputs)[0]
        arrays = {name: batch[name].numpy() for name in columns}
        gradient = gradient_of(policy.logprobs, policy.entropy, values, arrays, **options)
        fused.actor.backward(categorical_gradient(policy, gradient.to_logprobs, gradient.to_entropy))
        fused.critic.backward(gradient.to_values[None])
        grad_norm = self.optimizer.apply_gradient(max_grad_norm=self.max_grad_norm)
        return UpdateResult(gradient.metrics | {"grad_norm": grad_norm})
