"""Trust Region Policy Optimization (Schulman et al., 2015, arXiv:1502.05477)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rl_training.algorithms.base import Algorithm, Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.heads import ActionHead
from rl_training.models.mlp import MLP
from rl_training.ops.fused import categorical_fisher, value_errors
from rl_training.ops.losses import clipped_value_loss, normalize
from rl_training.ops.trust_region import (
    LineSearch,
    VectorProduct,
    backtracking_line_search,
    conjugate_gradient,
    flat_gradient,
    hessian_vector_product,
    trust_region_step,
)


def trpo_surrogate(
    dist: Tensor, batch: Batch, *, head: ActionHead, advantages: Tensor, ent_coef: float
) -> tuple[Tensor, Tensor]:
    """(importance-weighted advantage plus entropy bonus, the entropy): what a step is to raise (eq. 14)."""
    ratio = (head.log_probs(dist, batch["actions"]) - batch["behavior_logprobs"]).exp()
    entropy = head.entropy(dist).mean()
    return (ratio * advantages).mean() + ent_coef * entropy, entropy


class TRPO(Algorithm):
    """`update` moves the policy by one natural-gradient step, `update_critic` the value function by one of Adam's."""

    state_parts = ("policy", "optimizer")
    policy: ActorCritic

    def __init__(
        self,
        policy: ActorCritic,
        *,
        learning_rate: float,
        target_kl: float = 0.01,
        ent_coef: float = 0.0,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        cg_iterations: int = 10,
        cg_damping: float = 0.1,
        line_search_shrink: float = 0.8,
        line_search_attempts: int = 10,
        normalize_advantages: bool = True,
        max_grad_norm: float = 0.5,
        adam_eps: float = 1e-5,
        optimizer: str = "adam",
    ) -> None:
        if policy.shares_torso:
            raise ValueError("TRPO bounds the policy's change, which a shared torso escapes: set share_torso to false")
        self.policy = policy
        for module in policy.actor_torso.modules():
            if isinstance(module, MLP):
                module.fused = False  # the fused layers have no second derivative, and autograd does not say so
        self.actor = [*policy.actor_torso.parameters(), *policy.head.parameters()]
        critic = [*policy.critic_torso.parameters(), *policy.value_head.parameters()]
        self.optimizer = FlatOptimizer(critic, learning_rate=learning_rate, eps=adam_eps, kind=optimizer)
        self.target_kl = target_kl
        self.ent_coef = ent_coef
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.cg_iterations = cg_iterations
        self.cg_damping = cg_damping
        self.line_search_shrink = line_search_shrink
        self.line_search_attempts = line_search_attempts
        self.normalize_advantages = normalize_advantages
        self.max_grad_norm = max_grad_norm

    def is_finite(self) -> bool:
        return self.optimizer.is_finite() and bool(torch.isfinite(parameters_to_vector(self.actor).sum()))

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        advantages = normalize(batch["advantages"]) if self.normalize_advantages else batch["advantages"]
        dist = self.policy.distribution(batch["obs"])
        surrogate, entropy = self._surrogate(dist, batch, advantages)
        gradient = self._combined(flat_gradient(surrogate, self.actor, retain_graph=True))
        product = self.fisher_product(dist, batch)

        def fisher(vector: Tensor) -> Tensor:
            return self._combined(product(vector) + self.cg_damping * vector)

        direction = conjugate_gradient(fisher, gradient, iterations=self.cg_iterations)
        step = trust_region_step(direction, fisher, max_kl=self.target_kl)
        objective = float(self._combined(surrogate.detach().clone()))
        search = self._line_search(step, batch, advantages, dist.detach(), objective)
        return UpdateResult(
            {
                "policy_loss": -surrogate.detach(),
                "entropy": entropy.detach(),
                "grad_norm": gradient.norm(),
                "line_search_accepted": float(search.accepted),
                "line_search_tried": float(search.tried),
                "step_kl": search.kl,
                "surrogate_gain": search.gain,
            }
        )

    def update_critic(self, batch: Batch) -> UpdateResult:
        fused = self.policy.fused
        if fused is not None and (inputs := fused.inputs(batch["obs"])) is not None:
            errors, squares = value_errors(fused.critic.forward(inputs)[0], {"returns": batch["returns"].numpy()}, None)
            fused.critic.backward((errors / np.float32(len(errors)))[None])
            grad_norm = self.optimizer.apply_gradient(max_grad_norm=self.max_grad_norm)
            return UpdateResult({"value_loss": 0.5 * squares.mean(), "critic_grad_norm": grad_norm})
        values = self.policy.values(batch["obs"])
        loss = clipped_value_loss(values, batch["values"], batch["returns"], None)
        grad_norm = self.optimizer.step(loss, max_grad_norm=self.max_grad_norm)
        return UpdateResult({"value_loss": loss.detach(), "critic_grad_norm": grad_norm})

    def fisher_product(self, dist: Tensor, batch: Batch) -> VectorProduct:
        """v ↦ F v, F being the Hessian of the mean KL from the policy to itself."""
        fused = self.policy.fused
        if fused is None or (inputs := fused.inputs(batch["obs"])) is None:
            return hessian_vector_product(self.policy.head.kl(dist.detach(), dist).mean(), self.actor)
        product = fused.actor.curvature(inputs, categorical_fisher(dist.detach().numpy().T))
        return lambda vector: torch.from_numpy(product(vector.numpy()))

    @torch.no_grad()
    def _line_search(
        self, step: Tensor, batch: Batch, advantages: Tensor, old_dist: Tensor, surrogate: float
    ) -> LineSearch:
        """Leaves the parameters at the accepted point, or exactly where they were."""

        def evaluate(point: Tensor) -> tuple[float, float]:
            vector_to_parameters(point, self.actor)
            dist = self.policy.distribution(batch["obs"])
            gain, kl = self._surrogate(dist, batch, advantages)[0], self.policy.head.kl(old_dist, dist).mean()
            return tuple(self._combined(torch.stack([gain, kl])).tolist())

        search = backtracking_line_search(
            evaluate,
            parameters_to_vector(self.actor),
            step,
            objective=surrogate,
            max_kl=self.target_kl,
            shrink=self.line_search_shrink,
            attempts=self.line_search_attempts,
        )
        vector_to_parameters(search.point, self.actor)
        return search

    def _combined(self, mean: Tensor) -> Tensor:
        """A mean over rows that may be shared with other learners, in place."""
        if self.optimizer.combine is not None:
            self.optimizer.combine(mean)
        return mean

    def _surrogate(self, dist: Tensor, batch: Batch, advantages: Tensor) -> tuple[Tensor, Tensor]:
        return trpo_surrogate(dist, batch, head=self.policy.head, advantages=advantages, ent_coef=self.ent_coef)
