"""The kernels of DQN: its actions, and its update on Huber's loss, in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Batch
from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.data.trees import Tree
from rl_training.kernels.nets import ArrayNet
from rl_training.kernels.policies import are_numbers, is_own_torso, joined, policy_net
from rl_training.kernels.table import replaces
from rl_training.models.actor_critic import Acted
from rl_training.models.q_network import QNetwork, QPolicy
from rl_training.models.returns import MeanReturn

_ARRAY_NETS: WeakKeyDictionary[QNetwork, tuple[tuple[object, ...], ArrayNet]] = WeakKeyDictionary()


def array_net(network: QNetwork) -> ArrayNet | None:
    """The network as a function of arrays, if it is a plain MLP: no streams, noise, distribution or masks."""
    modules = tuple(network._modules.values())
    known = _ARRAY_NETS.get(network)
    if known is None or known[0] != modules:
        plain = (type(network), type(network.advantages), type(network.returns)) == (QNetwork, nn.Linear, MeanReturn)
        if not plain or network.value is not None or network.view.is_masked or not is_own_torso(network.torso):
            return None
        net = policy_net(network.torso.mlp, network.advantages)  # type: ignore[arg-type]
        known = _ARRAY_NETS[network] = (modules, net)
    return known[1]


class Nets(NamedTuple):
    online: ArrayNet
    target: ArrayNet


def plain_networks(self: DQN, batch: Batch) -> Nets | None:
    """Exactly DQN with an MLP of tanh or ReLU and none of Rainbow's networks, on numbers."""
    fits = type(self) is DQN and type(self.optimizer) is FlatOptimizer and are_numbers(batch["obs"])
    online, target = (array_net(network) if fits else None for network in (self.network, self.target.network))
    return Nets(online, target) if online is not None and target is not None else None


def plain_network(self: QPolicy, obs: Tree, *rest: Any) -> ArrayNet | None:
    """An MLP of tanh or ReLU and none of Rainbow's networks, numbers on the CPU, no gradient wanted."""
    fits = type(self) is QPolicy and are_numbers(obs) and not torch.is_grad_enabled()
    return array_net(self.network) if fits else None


@replaces(QPolicy.act, when=plain_network, tolerance=1e-6)
def act(
    net: ArrayNet,
    self: QPolicy,
    obs: Tree,
    state: Tensor,
    *,
    generator: torch.Generator | None = None,
    deterministic: bool = False,
) -> Acted:
    best = net(joined(obs)).argmax(0)
    if deterministic or self.params.epsilon_persistence:
        actions = torch.from_numpy(best)
        return Acted(actions, state) if deterministic else self.explored(actions, obs, state, generator)
    is_random = torch.rand(len(best), generator=generator).numpy() < self.params.epsilon
    anything = torch.randint(len(net.arrays()[-1]), best.shape, generator=generator).numpy()
    return Acted(torch.from_numpy(np.where(is_random, anything, best)), state)


@replaces(DQN.update, when=plain_networks, tolerance=1e-5)
@np.errstate(over="ignore", invalid="ignore")  # what is not finite stops the run with the metric's name
def update(nets: Nets, self: DQN, batch: Batch) -> PrioritizedResult:
    params, count = self.params, len(batch["actions"])
    rows, size = np.arange(count), np.float32(count)
    actions, weights = batch["actions"].numpy(), batch["weights"].numpy()
    next_obs = joined(batch["next_obs"])
    following = nets.target(next_obs)
    worth = following[nets.online(next_obs).argmax(0), rows] if params.double else following.max(0)
    outputs = nets.online.forward(joined(batch["obs"]))
    chosen = outputs[actions, rows]
    errors = chosen - (batch["rewards"].numpy() + batch["discounts"].numpy() * worth)
    clipped = np.minimum(np.maximum(errors, -1.0), 1.0)  # the slope of Huber's loss
    slopes = weights * clipped / size
    delta = np.zeros(outputs.shape, dtype=np.float32)
    delta[actions, rows] = slopes
    nets.online.backward(delta)
    grad_norm = self.optimizer.apply_gradient(learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)
    self.target.average_every(params.target_update_interval, params.tau, self.network)
    distances = np.abs(errors)
    metrics: dict[str, float | Tensor] = {
        "loss": float(slopes @ (errors - 0.5 * clipped)),
        "q_mean": float(chosen.sum() / size),
        "td_error": float(distances.sum() / size),
        "grad_norm": grad_norm,
    }
    return PrioritizedResult(metrics, errors=torch.from_numpy(distances))
