"""The actors of SAC and TD3 without autograd: actions, and the gradients of what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from rl_training.kernels import compiled_actors
from rl_training.kernels.dense import DenseNet, of_linear, place
from rl_training.kernels.policies import is_own_torso
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.actors import Actor, GaussianActor, PointActor
from rl_training.models.precision import is_bfloat16


class Sampled(NamedTuple):
    """Actions `[N, size]` with what their gradients need; `outputs` are the network's, `[K, N]`."""

    actions: Floats
    logprobs: Floats  # [N]
    outputs: Floats
    noise: Floats


def sample_squashed(outputs: Floats, generator: torch.Generator) -> Sampled:
    noise = torch.empty(outputs.shape[1], len(outputs) // 2).normal_(generator=generator).numpy()
    return Sampled(*compiled_actors.squashed(outputs, noise), outputs, noise)


def squashed_gradient(sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> Floats:
    return compiled_actors.squashed_gradient(sampled.outputs, sampled.noise, sampled.actions, to_actions, to_logprob)


def sample_point(outputs: Floats, generator: torch.Generator) -> Sampled:
    actions = np.ascontiguousarray(np.tanh(outputs).T)
    return Sampled(actions, np.zeros(len(actions), dtype=np.float32), outputs, outputs)


def point_gradient(sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> Floats:
    return compiled_actors.point_gradient(sampled.actions, to_actions)


class ArrayActor:
    """The actor as functions of its network's inputs."""

    def __init__(self, actor: Actor) -> None:
        self.modules = tuple(actor._modules.values())
        self.place = place(actor.last)
        mlp = actor.torso.mlp
        layers = [of_linear(layer) for layer in (*mlp.layers, actor.last)]
        self._net = DenseNet(layers, in_bfloat16=is_bfloat16(mlp.precision, "cpu"))
        self._sample, self._gradient = ARRAY_ACTORS[type(actor)]

    @classmethod
    def of(cls, actor: Actor) -> ArrayActor | None:
        """The actor's twin, if its torso is a plain MLP of numbers with ReLU."""
        known = _ARRAY_ACTORS.get(actor)
        if known is None or known.modules != tuple(actor._modules.values()) or known.place != place(actor.last):
            if not is_own_torso(actor.torso) or not actor.torso.mlp.layers or actor.torso.mlp.activation != "relu":
                return None
            known = _ARRAY_ACTORS[actor] = cls(actor)
        return known

    def sample(self, obs: Floats, generator: torch.Generator) -> Sampled:
        return self._sample(self._net.forward(obs), generator)

    def write_gradients(self, sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> None:
        self._net.write_gradients(self._gradient(sampled, to_actions, to_logprob))


ARRAY_ACTORS: dict[type, tuple[Callable[..., Sampled], Callable[..., Floats]]] = {
    GaussianActor: (sample_squashed, squashed_gradient),
    PointActor: (sample_point, point_gradient),
}
_ARRAY_ACTORS: WeakKeyDictionary[Actor, Any] = WeakKeyDictionary()
