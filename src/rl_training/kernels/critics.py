"""Kernels of actors that learn through critics, SAC's and TD3's: losses and their gradients without autograd.

The critics go one by one. The gradient of the least critic is that of one critic only: each row goes back through the
one that it came from.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Batch
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.sac import SAC, ActorThroughCritics
from rl_training.algorithms.td3 import TD3
from rl_training.kernels.actors import ARRAY_ACTORS, ArrayActor, Sampled
from rl_training.kernels.compiled_actors import squared_errors
from rl_training.kernels.dense import DenseNet, of_member, place
from rl_training.kernels.policies import are_numbers, is_own_torso, joined
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.actors import Candidates
from rl_training.models.critics import Critics, EnsembleLinear
from rl_training.models.precision import is_bfloat16


class ArrayCritics:
    """The members of `Critics` with ReLU, each a network that shares the module's memory."""

    def __init__(self, critics: Critics) -> None:
        self.modules = tuple(critics._modules.values())
        self.place = place(critics.last)
        layers, precision = [*critics.layers, critics.last], critics.precision
        self.members = [
            DenseNet([of_member(layer, member) for layer in layers], in_bfloat16=is_bfloat16(precision, "cpu"))
            for member in range(len(critics.last.weight))
        ]


_ARRAY_CRITICS: WeakKeyDictionary[Critics, ArrayCritics] = WeakKeyDictionary()


def array_critics(critics: Critics) -> ArrayCritics | None:
    """The critics as functions of arrays, if they are plain ReLU networks of numbers and actions."""
    known = _ARRAY_CRITICS.get(critics)
    if known is None or known.modules != tuple(critics._modules.values()) or known.place != place(critics.last):
        plain = type(critics) is Critics and critics.norms is None and not critics.dropout and critics.takes_actions
        if not plain or critics.outputs != (1, 1) or critics.activation != "relu" or not is_own_torso(critics.torso):
            return None
        if not critics.layers or any(type(layer) is not EnsembleLinear for layer in (*critics.layers, critics.last)):
            return None
        known = _ARRAY_CRITICS[critics] = ArrayCritics(critics)
    return known


class Arrays(NamedTuple):
    actor: ArrayActor
    next_actor: ArrayActor
    critics: ArrayCritics
    target: ArrayCritics


def plain_networks(self: ActorThroughCritics, batch: Batch) -> Arrays | None:
    """Exactly SAC or TD3 with Box actions, ReLU networks and none of the critics' options, on numbers."""
    optimizers = (type(self.optimizer), type(self.critic_optimizer))
    fits = type(self) in (SAC, TD3) and optimizers == (FlatOptimizer, FlatOptimizer) and are_numbers(batch["obs"])
    if not fits or self.target is None or type(self.policy) not in ARRAY_ACTORS:
        return None
    actor = ArrayActor.of(self.policy)
    next_actor = actor if self.next_actor is self.policy else ArrayActor.of(self.next_actor)
    critics, target = array_critics(self.critics), array_critics(self.target.network)
    if actor is None or next_actor is None or critics is None or target is None:
        return None
    return Arrays(actor, next_actor, critics, target)


@replaces(ActorThroughCritics.update_critics, when=plain_networks, tolerance=1e-5)
@np.errstate(over="ignore", invalid="ignore")  # what is not finite stops the run with the metric's name
def update_critics(arrays: Arrays, self: ActorThroughCritics, batch: Batch) -> tuple[dict[str, Any], Tensor]:
    next_obs = joined(batch["next_obs"])
    candidates = self.smoothed(_candidates(self, arrays.next_actor.sample(next_obs, self.noise.generator)))
    assert candidates.actions is not None
    least = values_by(arrays.target.members, next_obs, candidates.actions.numpy()).min(0)
    worth = least - np.float32(self.entropy_weight()) * candidates.logprobs.numpy()[:, 0]
    targets = batch["rewards"].numpy() + batch["discounts"].numpy() * worth
    values = values_by(arrays.critics.members, joined(batch["obs"]), batch["actions"].numpy())
    gradients, distances, *means = squared_errors(values, targets, batch["weights"].numpy())
    for member, gradient in zip(arrays.critics.members, gradients, strict=True):
        member.write_gradients(gradient[None])
    self.critic_optimizer.apply_gradient(learning_rate=self.params.learning_rate, max_grad_norm=None)
    metrics = dict(zip(("critic_loss", "q_mean", "td_error"), means, strict=True))
    return metrics, torch.from_numpy(distances)


@replaces(ActorThroughCritics.update_policy, when=plain_networks, tolerance=1e-5)
@np.errstate(over="ignore", invalid="ignore")
def update_policy(arrays: Arrays, self: ActorThroughCritics, batch: Batch) -> dict[str, Any]:
    obs = joined(batch["obs"])
    sampled = arrays.actor.sample(obs, self.noise.generator)
    ent_coef = np.float32(self.entropy_weight())
    climbed = arrays.critics.members[: self.climbed_critics]
    values = values_by(climbed, obs, sampled.actions)
    chosen = values.argmin(0)
    to_actions = np.empty_like(sampled.actions)
    for number, member in enumerate(climbed):
        rows = np.flatnonzero(chosen == number)
        upwards = np.full((1, len(rows)), -1.0 / len(obs), dtype=np.float32)
        to_actions[rows] = member.input_gradients(upwards, rows, obs.shape[1])
    arrays.actor.write_gradients(sampled, to_actions, ent_coef / np.float32(len(obs)))
    self.optimizer.apply_gradient(learning_rate=self.params.learning_rate, max_grad_norm=None)
    loss = float((ent_coef * sampled.logprobs - values.min(0)).mean())
    return {"policy_loss": loss} | self.after_policy(_candidates(self, sampled))


def values_by(critics: list[DenseNet], obs: Floats, actions: Floats) -> Floats:
    """`[E, N]`: the values of the actions by each of the critics."""
    inputs = np.concatenate([obs, actions], axis=1)
    return np.concatenate([critic.forward(inputs) for critic in critics])


def _candidates(self: ActorThroughCritics, sampled: Sampled) -> Candidates:
    return self.policy.only(torch.from_numpy(sampled.actions), torch.from_numpy(sampled.logprobs))
