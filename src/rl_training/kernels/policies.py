"""Kernels of actor-critics: two MLPs and an action head, in NumPy."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.kernels.heads import ARRAY_HEADS
from rl_training.kernels.nets import ARRAY_ACTIVATIONS, ArrayNet
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.actor_critic import Acted, ActorCritic, Evaluated
from rl_training.models.mlp import MLP
from rl_training.models.normalization import ObsNormalizer, RunningMeanStd
from rl_training.models.torsos import DictTorso, VectorTorso


class ArrayPolicy:
    """The networks of a policy as functions of arrays."""

    def __init__(self, policy: ActorCritic) -> None:
        self.policy = weakref.ref(policy)
        self.modules = tuple(policy._modules.values())
        self.head = ARRAY_HEADS[type(policy.head)](policy.head)
        self.actor = policy_net(policy.actor_torso.mlp, self.head.linear)
        self.critic = policy_net(policy.critic_torso.mlp, policy.value_head)
        self._normalizer = policy.normalizer
        self._scaled_by: tuple[Any, ...] = ()
        self._mean = self._scale = np.empty(0, dtype=np.float32)

    def inputs(self, obs: Tree) -> Floats:
        normalizer = self._normalizer
        if normalizer is None or normalizer.stats is None:
            return joined(obs if normalizer is None else normalizer(obs))
        self._follow(normalizer.stats)
        normed = joined(obs) - self._mean
        normed *= self._scale
        np.minimum(normed, np.float32(normalizer.clip), out=normed)
        return np.maximum(normed, np.float32(-normalizer.clip), out=normed)

    def _follow(self, stats: RunningMeanStd) -> None:
        """Casts the statistics where they have moved, which they do once in a rollout."""
        moved = (stats.mean, stats.mean._version, stats.var._version)
        if not self._scaled_by or self._scaled_by[0] is not moved[0] or self._scaled_by[1:] != moved[1:]:
            self._mean, self._scale = (row.float().numpy().reshape(-1) for row in (stats.mean, stats.scale()))
            self._scaled_by = moved


def policy_net(mlp: MLP, last: nn.Linear) -> ArrayNet:
    """Compiled where that was measured to be quicker, which is for narrow layers."""
    widths = [len(parameter) for parameter in mlp.parameters()]
    if not widths or max(widths) > WIDEST_COMPILED:
        return ArrayNet(mlp, last)
    from rl_training.kernels.compiled_nets import CompiledNet  # it loads numba

    return CompiledNet(mlp, last)


WIDEST_COMPILED = 64

_ARRAY_POLICIES: WeakKeyDictionary[ActorCritic, ArrayPolicy] = WeakKeyDictionary()
_recent: list[ArrayPolicy] = []  # the last one that was asked for: a look-up costs as much as a layer


def array_policy(policy: ActorCritic) -> ArrayPolicy | None:
    """The policy's networks as functions of arrays, if it has exactly those that they can stand for."""
    recent = _recent[0] if _recent else None
    known = recent if recent is not None and recent.policy() is policy else _ARRAY_POLICIES.get(policy)
    if known is None or known.modules != tuple(policy._modules.values()):
        if not _is_own_policy(policy):
            return None
        known = _ARRAY_POLICIES[policy] = ArrayPolicy(policy)
    if known is not recent:
        _recent[:] = [known]
    return known


def _is_own_policy(policy: ActorCritic) -> bool:
    """Separate torsos that are MLPs of numbers, a head that has a NumPy form, nothing subclassed."""
    if type(policy) is not ActorCritic or policy.shares_torso or policy.view.is_masked:
        return False
    torsos, head = (policy.actor_torso, policy.critic_torso), policy.head
    return (
        type(policy.normalizer) in OWN_NORMALIZERS
        and all(map(is_own_torso, torsos))
        and type(head) in ARRAY_HEADS
        and type(head.linear) is nn.Linear
        and type(policy.value_head) is nn.Linear
    )


def is_own_torso(torso: Any) -> bool:
    """Tells of an MLP of numbers, or of a mapping's numbers joined, with activations that have a NumPy form."""
    if type(torso) is DictTorso:
        parts = all(is_own_torso(part) and not list(part.parameters()) for part in torso.torsos)
        return parts and list(torso.keys) == sorted(torso.keys) and _is_own_mlp(torso.mlp)
    return type(torso) is VectorTorso and not torso.classes and _is_own_mlp(torso.mlp)


def _is_own_mlp(mlp: Any) -> bool:
    return type(mlp) is MLP and mlp.activation in ARRAY_ACTIVATIONS and all(type(x) is nn.Linear for x in mlp.layers)


OWN_NORMALIZERS = (type(None), ObsNormalizer)


# Whole numbers and truth values, which torsos of vectors flatten and turn into float32, are as good as float32 itself.
NUMBERS = (torch.float32, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def are_numbers(obs: Tree) -> bool:
    """Observations, or the parts of a mapping, that `joined` makes one array of."""
    if isinstance(obs, Mapping):
        return all(map(are_numbers, obs.values()))
    return isinstance(obs, Tensor) and obs.dtype in NUMBERS and obs.is_cpu and obs.dim() > 1


def joined(obs: Tree) -> Floats:
    """Vectors and grids as one array `[N, F]`, those of a mapping in the order of its keys."""
    if isinstance(obs, Mapping):
        return np.concatenate([joined(obs[key]) for key in sorted(obs)], axis=1)
    array = obs.numpy()
    return array if array.dtype == np.float32 and array.ndim == 2 else array.reshape(len(array), -1).astype(np.float32)


def separate_small_mlps(policy: ActorCritic, obs: Tree, *rest: Any) -> ArrayPolicy | None:
    """Separate MLPs of tanh or ReLU, any action head of the package, numbers on the CPU, no gradient wanted."""
    return None if torch.is_grad_enabled() or not are_numbers(obs) else array_policy(policy)


@replaces(ActorCritic.act, when=separate_small_mlps, tolerance=1e-6)
def act(
    arrays: ArrayPolicy,
    policy: ActorCritic,
    obs: Tensor,
    state: Tensor,
    *,
    generator: torch.Generator | None = None,
    deterministic: bool = False,
) -> Acted:
    outputs = arrays.actor(arrays.inputs(obs))
    actions = arrays.head.mode(outputs) if deterministic else arrays.head.sample(outputs, generator)
    return Acted(torch.from_numpy(actions), state)


@replaces(ActorCritic.evaluate_actions, when=separate_small_mlps, tolerance=1e-5)
def evaluate_actions(arrays: ArrayPolicy, policy: ActorCritic, obs: Tensor, actions: Tensor) -> Evaluated:
    inputs = arrays.inputs(obs)
    said = arrays.head.evaluate(arrays.actor(inputs), actions.numpy())
    columns = (said.logprobs, said.entropy, arrays.critic(inputs)[0], said.dist)
    return Evaluated(*map(torch.from_numpy, columns))


@replaces(ActorCritic.distribution, when=separate_small_mlps, tolerance=1e-5)
def distribution(arrays: ArrayPolicy, policy: ActorCritic, obs: Tensor) -> Tensor:
    return torch.from_numpy(arrays.head.distribution(arrays.actor(arrays.inputs(obs))))


@replaces(ActorCritic.values, when=separate_small_mlps, tolerance=1e-5)
def values(arrays: ArrayPolicy, policy: ActorCritic, obs: Tensor, state: Tensor | None = None) -> Tensor:
    return torch.from_numpy(arrays.critic(arrays.inputs(obs))[0])
