"""Kernels of actors that learn through critics, SAC's and TD3's: layers, losses and their gradients in NumPy.

The critics go one by one, since NumPy's product of two matrices is quicker than torch's of two batches. The gradient of
the least critic is that of one critic only: each row goes back through the one that it came from.
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
from rl_training.kernels.nets import relu
from rl_training.kernels.policies import are_numbers, is_own_torso, joined
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.actors import Candidates
from rl_training.models.critics import Critics, EnsembleLinear


class Layer(NamedTuple):
    """One critic's weights `[in, out]` and biases, with their gradients."""

    weight: Floats
    bias: Floats
    to_weight: Floats | None
    to_bias: Floats | None


class ArrayCritic:
    """One member of `Critics` with ReLU, as a function of arrays that share the module's memory."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self._outputs: list[Floats] = []

    def __call__(self, inputs: Floats) -> Floats:
        """The values `[N]`; the layers are kept for what comes back."""
        outputs = [inputs]
        for layer in self.layers[:-1]:
            hidden = outputs[-1] @ layer.weight
            hidden += layer.bias
            relu(hidden)
            outputs.append(hidden)
        self._outputs = outputs
        last = self.layers[-1]
        return outputs[-1] @ last.weight[:, 0] + last.bias[0]

    def write_gradients(self, delta: Floats) -> None:
        """Writes the gradients of all parameters, given that of the values."""
        ones = np.ones(len(delta), dtype=np.float32)
        back = delta[:, None]
        for index in range(len(self.layers) - 1, -1, -1):
            layer, below = self.layers[index], self._outputs[index]
            np.matmul(below.T, back, out=layer.to_weight)
            np.matmul(ones, back, out=layer.to_bias)
            if index:
                back = self._through(back, layer, below)

    def input_gradients(self, delta: Floats, rows: Any, first: int) -> Floats:
        """The gradients of the chosen rows' inputs from column `first` on."""
        back = delta[:, None]
        for index in range(len(self.layers) - 1, 0, -1):
            back = self._through(back, self.layers[index], self._outputs[index][rows])
        return back @ self.layers[0].weight[first:].T

    @staticmethod
    def _through(back: Floats, layer: Layer, below: Floats) -> Floats:
        """Goes back through a layer and the ReLU below it."""
        # A product with a single column is many times as slow as what broadcasting makes of it.
        gradient = back * layer.weight[:, 0] if back.shape[1] == 1 else back @ layer.weight.T
        gradient *= below > 0.0
        return gradient


class ArrayCritics:
    def __init__(self, critics: Critics) -> None:
        self.modules = tuple(critics._modules.values())
        self._critics = [*critics.layers, critics.last]
        self.place = _place(critics)
        self.members = [ArrayCritic(self._layers_of(member)) for member in range(len(critics.last.weight))]

    def _layers_of(self, member: int) -> list[Layer]:
        found = []
        for layer in self._critics:
            assert isinstance(layer, EnsembleLinear)
            parts = (layer.weight, layer.bias)
            weight, bias = (part.detach().numpy()[member] for part in parts)
            to_weight, to_bias = (None if part.grad is None else part.grad.numpy()[member] for part in parts)
            found.append(Layer(weight, bias[0], to_weight, None if to_bias is None else to_bias[0]))
        return found

    def __call__(self, inputs: Floats) -> Floats:
        return np.stack([member(inputs) for member in self.members])


_ARRAY_CRITICS: WeakKeyDictionary[Critics, ArrayCritics] = WeakKeyDictionary()


def array_critics(critics: Critics) -> ArrayCritics | None:
    """The critics as functions of arrays, if they are plain ReLU networks of numbers and actions."""
    known = _ARRAY_CRITICS.get(critics)
    if known is None or known.modules != tuple(critics._modules.values()) or known.place != _place(critics):
        plain = type(critics) is Critics and critics.norms is None and not critics.dropout and critics.takes_actions
        if not plain or critics.outputs != (1, 1) or critics.activation != "relu" or not is_own_torso(critics.torso):
            return None
        if not all(type(layer) is EnsembleLinear for layer in (*critics.layers, critics.last)):
            return None
        known = _ARRAY_CRITICS[critics] = ArrayCritics(critics)
    return known


def _place(critics: Critics) -> tuple[int, int]:
    """Where the parameters are: they move when an optimizer flattens them."""
    weight = critics.last.weight
    return weight.data_ptr(), 0 if weight.grad is None else weight.grad.data_ptr()


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
    actor, next_actor = ArrayActor.of(self.policy), ArrayActor.of(self.next_actor)
    critics, target = array_critics(self.critics), array_critics(self.target.network)
    if actor is None or next_actor is None or critics is None or target is None:
        return None
    return Arrays(actor, next_actor, critics, target)


@replaces(ActorThroughCritics.update_critics, when=plain_networks, tolerance=1e-5)
@np.errstate(over="ignore", invalid="ignore")  # what is not finite stops the run with the metric's name
def update_critics(arrays: Arrays, self: ActorThroughCritics, batch: Batch) -> tuple[dict[str, Any], Tensor]:
    next_obs = joined(batch["next_obs"])
    following = arrays.next_actor.sample(next_obs, self.noise.generator)
    candidates = self.smoothed(_candidates(self, following))
    assert candidates.actions is not None
    least = arrays.target(np.concatenate([next_obs, candidates.actions.numpy()], axis=1)).min(0)
    worth = least - np.float32(self.entropy_weight()) * candidates.logprobs.numpy()[:, 0]
    targets = batch["rewards"].numpy() + batch["discounts"].numpy() * worth
    values = arrays.critics(np.concatenate([joined(batch["obs"]), batch["actions"].numpy()], axis=1))
    errors, weights = values - targets, batch["weights"].numpy()
    for member, delta in zip(arrays.critics.members, errors * (weights / np.float32(len(weights))), strict=True):
        member.write_gradients(delta)
    self.critic_optimizer.apply_gradient(learning_rate=self.params.learning_rate, max_grad_norm=None)
    distances = np.abs(errors).mean(0)
    loss = float((weights * 0.5 * np.square(errors).sum(0)).mean())
    metrics = {"critic_loss": loss, "q_mean": float(values.mean()), "td_error": float(distances.mean())}
    return metrics, torch.from_numpy(distances)


@replaces(ActorThroughCritics.update_policy, when=plain_networks, tolerance=1e-5)
@np.errstate(over="ignore", invalid="ignore")
def update_policy(arrays: Arrays, self: ActorThroughCritics, batch: Batch) -> dict[str, Any]:
    obs = joined(batch["obs"])
    sampled = arrays.actor.sample(obs, self.noise.generator)
    ent_coef = np.float32(self.entropy_weight())
    inputs = np.concatenate([obs, sampled.actions], axis=1)
    climbed = arrays.critics.members[: self.climbed_critics]
    values = np.stack([member(inputs) for member in climbed])
    chosen = values.argmin(0)
    to_actions = np.empty_like(sampled.actions)
    for number, member in enumerate(climbed):
        rows = np.flatnonzero(chosen == number)
        upwards = np.full(len(rows), -1.0 / len(obs), dtype=np.float32)
        to_actions[rows] = member.input_gradients(upwards, rows, obs.shape[1])
    arrays.actor.write_gradients(sampled, to_actions, ent_coef / np.float32(len(obs)))
    self.optimizer.apply_gradient(learning_rate=self.params.learning_rate, max_grad_norm=None)
    loss = float((ent_coef * sampled.logprobs - values.min(0)).mean())
    return {"policy_loss": loss} | self.after_policy(_candidates(self, sampled))


def _candidates(self: ActorThroughCritics, sampled: Sampled) -> Candidates:
    return self.policy.only(torch.from_numpy(sampled.actions), torch.from_numpy(sampled.logprobs))
