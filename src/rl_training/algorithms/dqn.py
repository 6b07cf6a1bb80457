"""DQN (Mnih et al., 2015, doi:10.1038/nature14236) and the improvements that make it Rainbow (arXiv:1710.02298)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Batch
from rl_training.algorithms.noise import NoiseStream
from rl_training.algorithms.off_policy import OffPolicyParams
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.models.q_network import QNetwork, QPolicy
from rl_training.replaceable import replaceable


class DQNParams(OffPolicyParams):
    learning_rate: PositiveFloat = Field(1e-3)
    epsilon: float = Field(0.1, ge=0, le=1, description="chance of an action at random")
    epsilon_persistence: float = Field(
        0.0, ge=0, lt=1, description="chance that an action at random is taken for another step, whatever epsilon is"
    )
    replay_ratio: float = Field(0.25, ge=0)
    batch_size: PositiveInt = Field(64)
    tau: float = Field(1.0, gt=0, le=1)
    target_update_interval: PositiveInt = Field(250)
    max_grad_norm: PositiveFloat = Field(10.0, description="bound on the norm of the gradient")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64))
    double: bool = Field(True, description="the network chooses the next action, its target network values it")
    dueling: bool = Field(False, description="the value of the state and the advantages of actions apart")
    noisy: bool = Field(False, description="noise on the weights of the last layers explores (with epsilon 0 alone)")
    distribution: Literal["none", "categorical", "quantile"] = Field(
        "none", description="of returns, learned in place of their mean: C51's or QR-DQN's"
    )
    num_atoms: PositiveInt = Field(51, ge=2, description="fixed returns of a categorical distribution, or quantiles")
    v_min: float = Field(-10.0, description="lowest return of a categorical distribution")
    v_max: float = Field(10.0, description="highest return of a categorical distribution")

    def idle(self) -> dict[str, str]:
        unused = {"none": ("num_atoms", "v_min", "v_max"), "quantile": ("v_min", "v_max"), "categorical": ()}
        why = f"with distribution {self.distribution}"
        return super().idle() | dict.fromkeys(unused[self.distribution], why)


class DQN(Algorithm):
    """A gradient step on a batch of transitions per `update`, towards what a copy that lags behind says."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "target", "noise")
    policy: QPolicy

    params: DQNParams

    def __init__(self, policy: QPolicy, params: DQNParams) -> None:
        self.policy = policy
        self.params = params
        self.optimizer = FlatOptimizer(policy.parameters(), eps=params.adam_eps, kind="adam")
        self.target = TargetNetwork(policy.network)
        self.noise = NoiseStream()

    @property
    def network(self) -> QNetwork:
        return self.policy.network

    @replaceable
    def update(self, batch: Batch) -> PrioritizedResult:
        params, network = self.params, self.network
        network.draw_noise(self.noise.generator)
        targets = self.targets(batch)
        outputs = network(batch["obs"])
        chosen = take_actions(outputs, batch["actions"])
        losses, errors = network.returns.losses(chosen, targets)
        loss = (batch["weights"] * losses).mean()
        grad_norm = self.optimizer.step(loss, learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)
        self.target.average_every(params.target_update_interval, params.tau, network)
        q_mean = network.returns.mean(chosen.detach()).mean()
        metrics = {"loss": loss.detach(), "q_mean": q_mean, "td_error": errors.mean(), "grad_norm": grad_norm}
        return PrioritizedResult(metrics, errors=errors)

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """r + γⁿ Q′(s′, a*), where a* is the best action of the network itself (double) or of the target network."""
        self.target.network.draw_noise(self.noise.generator)
        outputs = self.target.network(batch["next_obs"])
        choosing = self.network(batch["next_obs"]) if self.params.double else outputs
        means = self.network.legal_means(choosing, batch["next_obs"])
        best = take_actions(outputs, means.argmax(-1))
        return self.network.returns.targets(best, batch["rewards"], batch["discounts"])


def take_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """`[B, A, Z]` and one action of each row → `[B, Z]`."""
    return outputs[torch.arange(len(actions), device=actions.device), actions]
