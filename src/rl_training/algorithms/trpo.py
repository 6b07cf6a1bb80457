"""Trust Region Policy Optimization (Schulman et al., 2015, arXiv:1502.05477)."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rl_training.algorithms.actor_critic import BATCH_SIZE, ActorCriticAlgorithm, PolicyParams, idle_beside
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.heads import ActionHead
from rl_training.ops.trust_region import (
    LineSearch,
    VectorProduct,
    backtracking_line_search,
    conjugate_gradient,
    flat_gradient,
    hessian_vector_product,
    trust_region_step,
)
from rl_training.replaceable import replaceable


class TRPOParams(PolicyParams):
    learning_rate: PositiveFloat = Field(1e-3, description="of the critic")
    max_grad_norm: PositiveFloat = Field(0.5, description="of the critic")
    target_kl: PositiveFloat = Field(0.01, description="bound on the mean KL of the policy's step")
    cg_iterations: PositiveInt = Field(10, description="steps of conjugate gradients")
    cg_damping: float = Field(0.1, ge=0, description="added to the diagonal of the Fisher matrix")
    line_search_shrink: float = Field(0.8, gt=0, lt=1, description="by how much a rejected step is shortened")
    line_search_attempts: PositiveInt = Field(10, description="steps tried before the policy stays where it is")
    critic_updates: PositiveInt = Field(10, description="passes over the rollout that fit the critic")
    num_minibatches: PositiveInt = Field(8, description="parts of each of the critic's passes")
    batch_size: PositiveInt | None = Field(None, description=BATCH_SIZE)

    def idle(self) -> dict[str, str]:
        return super().idle() | idle_beside(self.batch_size)

    @field_validator("share_torso")
    @classmethod
    def _torsos_are_apart(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("share_torso: TRPO needs separate torsos for policy and value; leave it out")
        return value


def trpo_surrogate(
    dist: Tensor, batch: Batch, *, head: ActionHead, advantages: Tensor, ent_coef: float
) -> tuple[Tensor, Tensor]:
    """(importance-weighted advantage plus entropy bonus, the entropy): what a step is to raise (eq. 14)."""
    ratio = (head.log_probs(dist, batch["actions"]) - batch["behavior_logprobs"]).exp()
    entropy = head.entropy(dist).mean()
    return (ratio * advantages).mean() + ent_coef * entropy, entropy


class TRPO(ActorCriticAlgorithm):
    """`update` moves the policy by one natural-gradient step, `update_critic` the value function by one of Adam's."""

    params: TRPOParams

    def __init__(self, policy: ActorCritic, params: TRPOParams) -> None:
        if policy.shares_torso:
            raise ValueError("TRPO bounds the policy's change, which a shared torso escapes: set share_torso to false")
        self.policy = policy
        self.params = params
        self.actor = [*policy.actor_torso.parameters(), *policy.head.parameters()]
        critic = [*policy.critic_torso.parameters(), *policy.value_head.parameters()]
        self.optimizer = FlatOptimizer(critic, eps=params.adam_eps, kind=params.optimizer)

    def is_finite(self) -> bool:
        return self.optimizer.is_finite() and bool(torch.isfinite(parameters_to_vector(self.actor).sum()))

    def update(self, batch: Batch) -> UpdateResult:
        params, mean_ = self.params, self.peers.mean_
        advantages = self.usable(batch["advantages"])
        dist = self.policy.distribution(batch["obs"])
        surrogate, entropy = self._surrogate(dist, batch, advantages)
        gradient = mean_(flat_gradient(surrogate, self.actor, retain_graph=True))
        product = self.fisher_product(dist, batch)

        def fisher(vector: Tensor) -> Tensor:
            return mean_(product(vector) + params.cg_damping * vector)

        direction = conjugate_gradient(fisher, gradient, iterations=params.cg_iterations)
        step = trust_region_step(direction, fisher, max_kl=params.target_kl)
        objective = float(mean_(surrogate.detach().clone()))
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

    @replaceable
    def update_critic(self, batch: Batch) -> UpdateResult:
        values = self.policy.values(batch["obs"])
        loss = 0.5 * (values - batch["returns"]).square().mean()
        return UpdateResult({"value_loss": loss.detach(), "critic_grad_norm": self.descend_along(loss)})

    @replaceable
    def fisher_product(self, dist: Tensor, batch: Batch) -> VectorProduct:
        """v ↦ F v, F being the Hessian of the mean KL from the policy to itself."""
        return hessian_vector_product(self.policy.head.kl(dist.detach(), dist).mean(), self.actor)

    @torch.no_grad()
    def _line_search(
        self, step: Tensor, batch: Batch, advantages: Tensor, old_dist: Tensor, surrogate: float
    ) -> LineSearch:
        """Leaves the parameters at the accepted point, or exactly where they were."""

        def evaluate(point: Tensor) -> tuple[float, float]:
            vector_to_parameters(point, self.actor)
            dist = self.policy.distribution(batch["obs"])
            gain, kl = self._surrogate(dist, batch, advantages)[0], self.policy.head.kl(old_dist, dist).mean()
            return tuple(self.peers.mean_(torch.stack([gain, kl])).tolist())

        search = backtracking_line_search(
            evaluate,
            parameters_to_vector(self.actor),
            step,
            objective=surrogate,
            max_kl=self.params.target_kl,
            shrink=self.params.line_search_shrink,
            attempts=self.params.line_search_attempts,
        )
        vector_to_parameters(search.point, self.actor)
        return search

    def _surrogate(self, dist: Tensor, batch: Batch, advantages: Tensor) -> tuple[Tensor, Tensor]:
        return trpo_surrogate(dist, batch, head=self.policy.head, advantages=advantages, ent_coef=self.params.ent_coef)
