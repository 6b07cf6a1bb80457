"""Kernels of gradient steps: losses, their gradients and the networks' in NumPy, without autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.a2c import A2C, A2CLoss
from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.appo import APPO
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.gail import GAIL
from rl_training.algorithms.impala import IMPALA
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.peers import ALONE
from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.trpo import TRPO
from rl_training.kernels.heads import ArrayCategorical, ArrayGaussian
from rl_training.kernels.losses import (
    LossGradient,
    a2c_gradient,
    impala_gradient,
    normalized,
    ppo_gradient,
    value_errors,
)
from rl_training.kernels.policies import ArrayPolicy, are_numbers, array_policy
from rl_training.kernels.table import replaces
from rl_training.ops.trust_region import VectorProduct


def own_algorithm(*algorithms: type) -> Callable[..., ArrayPolicy | None]:
    def holds(self: ActorCriticAlgorithm, *arguments: Any) -> ArrayPolicy | None:
        fits = type(self) in algorithms and self.peers is ALONE and type(self.optimizer) is FlatOptimizer
        return array_policy(self.policy) if fits and are_numbers(arguments[-1]["obs"]) else None

    names = " or ".join(algorithm.__name__ for algorithm in algorithms)
    holds.__doc__ = f"Exactly {names}, alone, with a policy as `ActorCritic.act`'s, on numbers."
    return holds


@np.errstate(over="ignore", invalid="ignore")  # what is not finite stops the run with the metric's name
def descend(
    arrays: ArrayPolicy,
    algorithm: ActorCriticAlgorithm,
    batch: Batch,
    gradient_of: Callable[..., LossGradient],
    columns: Sequence[str],
    **scalars: Any,
) -> UpdateResult:
    """A gradient step on a loss whose derivatives `gradient_of` knows."""
    inputs, params = arrays.inputs(batch["obs"]), algorithm.params
    policy = arrays.head.evaluate(arrays.actor.forward(inputs), batch["actions"].numpy())
    values = arrays.critic.forward(inputs)[0]
    given = {name: batch[name].numpy() for name in columns}
    if params.normalize_advantages:
        given["advantages"] = normalized(given["advantages"])
    gradient = gradient_of(policy.logprobs, policy.entropy, values, given, **scalars)
    arrays.actor.backward(arrays.head.gradient(policy, gradient.to_logprobs, gradient.to_entropy))
    arrays.critic.backward(gradient.to_values[None])
    grad_norm = _apply(algorithm)
    return UpdateResult(gradient.metrics | {"grad_norm": grad_norm})


def _apply(algorithm: ActorCriticAlgorithm) -> Tensor:
    params = algorithm.params
    return algorithm.optimizer.apply_gradient(learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)


@replaces(PPO.update, when=own_algorithm(PPO, GAIL), tolerance=1e-5)
def ppo_update(arrays: ArrayPolicy, self: PPO, batch: Batch) -> UpdateResult:
    return clipped_step(arrays, self, batch, clip_value_loss=self.params.clip_value_loss)


def own_appo(self: APPO, rows: Batch) -> ArrayPolicy | None:
    """Exactly APPO without target network, alone, with a policy as `ActorCritic.act`'s, on numbers."""
    return own_algorithm(APPO)(self, rows) if self.target is None else None


@replaces(APPO.gradient_step, when=own_appo, tolerance=1e-5)
def appo_step(arrays: ArrayPolicy, self: APPO, rows: Batch) -> UpdateResult:
    metrics = clipped_step(arrays, self, rows, clip_value_loss=False, kl_coef=self.params.kl_coef).metrics
    return UpdateResult({**metrics, "kl": metrics["approx_kl"], **self.of_traces(rows)})


def clipped_step(
    arrays: ArrayPolicy, self: ActorCriticAlgorithm, batch: Batch, *, clip_value_loss: bool, kl_coef: float = 0.0
) -> UpdateResult:
    """A gradient step on the clipped surrogate, the value error, the entropy bonus and the penalty on the KL."""
    clip_coef = self.params.clip_coef
    if (head := compiled_head(arrays)) is not None:
        value_clip = clip_coef if clip_value_loss else NONE
        return compiled_step(arrays, head, self, batch, (clip_coef, NONE, kl_coef), value_clip=value_clip)
    columns = ("behavior_logprobs", "values", "advantages", "returns")
    scalars = {"clip_coef": clip_coef, "clip_value_loss": clip_value_loss, "kl_coef": kl_coef, **_weights(self)}
    return descend(arrays, self, batch, ppo_gradient, columns, **scalars)


@replaces(A2C.update, when=own_algorithm(A2C), tolerance=1e-5)
def a2c_update(arrays: ArrayPolicy, self: A2C, batch: Batch) -> UpdateResult:
    if (head := compiled_head(arrays)) is not None:
        metrics = compiled_step(arrays, head, self, batch, (NONE, NONE, 0.0)).metrics
        return UpdateResult({name: metrics[name] for name in ("grad_norm", "loss", *A2CLoss._fields[1:])})
    return descend(arrays, self, batch, a2c_gradient, ("advantages", "returns"), **_weights(self))


@replaces(IMPALA.gradient_step, when=own_algorithm(IMPALA), tolerance=1e-5)
def impala_step(arrays: ArrayPolicy, self: IMPALA, rows: Batch) -> UpdateResult:
    params = self.params
    if (head := compiled_head(arrays)) is not None:
        metrics = compiled_step(arrays, head, self, rows, (NONE, params.pg_rho_bar, params.kl_coef)).metrics
        metrics = {name: metrics[name] for name in metrics if name != "clip_fraction"}
    else:
        columns = ("advantages", "returns", "behavior_logprobs")
        scalars = {"pg_rho_bar": params.pg_rho_bar, "kl_coef": params.kl_coef, **_weights(self)}
        metrics = descend(arrays, self, rows, impala_gradient, columns, **scalars).metrics
    return UpdateResult({**metrics, **self.of_traces(rows)})


NONE = -1.0  # in place of a bound


def compiled_head(arrays: ArrayPolicy) -> ArrayGaussian | ArrayCategorical | None:
    """The action head, if `compiled_losses` know it."""
    head = arrays.head
    return head if isinstance(head, ArrayGaussian) or (isinstance(head, ArrayCategorical) and not head.joint) else None


def compiled_step(
    arrays: ArrayPolicy,
    head: ArrayGaussian | ArrayCategorical,
    self: ActorCriticAlgorithm,
    batch: Batch,
    limits: tuple[float, float, float],
    *,
    value_clip: float = NONE,
) -> UpdateResult:
    """A gradient step on the surrogate or the policy gradient within `compiled_losses.Limits`."""
    from rl_training.kernels.compiled_losses import usable, value_error  # it loads numba

    params, inputs = self.params, arrays.inputs(batch["obs"])
    outputs, values = arrays.actor.forward(inputs), arrays.critic.forward(inputs)[0]
    advantages = usable(batch["advantages"].numpy(), params.normalize_advantages)
    given = (batch["actions"].numpy(), batch["behavior_logprobs"].numpy(), advantages)
    delta, (gain, divergence, clipped), entropy = head.loss(outputs, *given, limits, params.ent_coef)
    to_values, old = np.empty_like(values), (batch["values"].numpy(), batch["returns"].numpy())
    value_loss = value_error(values, *old, params.vf_coef, value_clip, to_values)
    arrays.actor.backward(delta)
    arrays.critic.backward(to_values[None])
    metrics = {
        "loss": params.vf_coef * value_loss - gain - params.ent_coef * entropy + limits[2] * divergence,
        "policy_loss": -gain,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": divergence,
        "clip_fraction": clipped,
    }
    return UpdateResult(metrics | {"grad_norm": _apply(self)})


def _weights(algorithm: ActorCriticAlgorithm) -> dict[str, float]:
    return {"ent_coef": algorithm.params.ent_coef, "vf_coef": algorithm.params.vf_coef}


@replaces(TRPO.update_critic, when=own_algorithm(TRPO), tolerance=1e-5)
def trpo_update_critic(arrays: ArrayPolicy, self: TRPO, batch: Batch) -> UpdateResult:
    values = arrays.critic.forward(arrays.inputs(batch["obs"]))[0]
    errors, squares = value_errors(values, {"returns": batch["returns"].numpy()}, None)
    arrays.critic.backward((errors / np.float32(len(errors)))[None])
    return UpdateResult({"value_loss": 0.5 * squares.mean(), "critic_grad_norm": _apply(self)})


@replaces(TRPO.fisher_product, when=own_algorithm(TRPO), tolerance=1e-5)
def trpo_fisher_product(arrays: ArrayPolicy, self: TRPO, dist: Tensor, batch: Batch) -> VectorProduct:
    metric, of_extra = arrays.head.fisher(dist.detach().numpy())
    product = arrays.actor.curvature(arrays.inputs(batch["obs"]), metric)
    # The head's other parameters stand between those of the torso and those of its linear layer.
    extra = sum(parameter.numel() for parameter in arrays.head.extra)
    first = sum(parameter.numel() for parameter in self.policy.actor_torso.parameters())

    def whole(vector: Tensor) -> Tensor:
        if not extra:
            return torch.from_numpy(product(vector.numpy()))
        before, own, after = vector.split([first, extra, len(vector) - first - extra])
        moved = torch.from_numpy(product(torch.cat([before, after]).numpy()))
        return torch.cat([moved[:first], of_extra * own, moved[first:]])

    return whole
