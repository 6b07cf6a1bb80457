"""The actors of SAC and TD3 in NumPy: actions, and the gradients of what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from rl_training.kernels.nets import ArrayNet
from rl_training.kernels.policies import is_own_torso
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.actors import Actor, GaussianActor, PointActor
from rl_training.models.heads import HALF_LOG_2PI
from rl_training.models.squashed import LOG_STD_HIGH, LOG_STD_LOW

LOG_2 = np.float32(np.log(2.0))


class Sampled(NamedTuple):
    """Actions `[N, size]` with what their gradients need; `outputs` are the network's, `[K, N]`."""

    actions: Floats
    logprobs: Floats  # [N]
    outputs: Floats
    noise: Floats


def sample_squashed(outputs: Floats, generator: torch.Generator) -> Sampled:
    """The tanh of a Gaussian, with log-densities in [−1, 1]."""
    mean, log_std = np.split(outputs, 2)
    log_std = log_std.clip(LOG_STD_LOW, LOG_STD_HIGH)
    noise = torch.empty(mean.T.shape).normal_(generator=generator).numpy().T
    raw = mean + np.exp(log_std) * noise
    slopes = 2.0 * (LOG_2 - raw - np.logaddexp(np.float32(0.0), -2.0 * raw))
    logprobs = -(0.5 * noise * noise + log_std + np.float32(HALF_LOG_2PI) + slopes).sum(0)
    return Sampled(np.ascontiguousarray(np.tanh(raw).T), logprobs, outputs, noise)


def squashed_gradient(sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> Floats:
    """The outputs' gradients: log-densities change with the raw sample by 2 tanh, and with log_std by −1."""
    actions = sampled.actions.T
    to_raw = to_actions.T * (1.0 - actions * actions) + to_logprob * 2.0 * actions
    log_std = np.split(sampled.outputs, 2)[1]
    inside = (log_std >= LOG_STD_LOW) & (log_std <= LOG_STD_HIGH)
    std = np.exp(log_std.clip(LOG_STD_LOW, LOG_STD_HIGH))
    return np.concatenate([to_raw, (to_raw * std * sampled.noise - to_logprob) * inside])


def sample_point(outputs: Floats, generator: torch.Generator) -> Sampled:
    actions = np.ascontiguousarray(np.tanh(outputs).T)
    return Sampled(actions, np.zeros(len(actions), dtype=np.float32), outputs, outputs)


def point_gradient(sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> Floats:
    return np.ascontiguousarray((to_actions * (1.0 - sampled.actions * sampled.actions)).T)


class ArrayActor:
    """The actor as functions of arrays."""

    def __init__(self, actor: Actor) -> None:
        self.modules = tuple(actor._modules.values())
        self.net = ArrayNet(actor.torso.mlp, actor.last)
        self._sample, self._gradient = ARRAY_ACTORS[type(actor)]

    @classmethod
    def of(cls, actor: Actor) -> ArrayActor | None:
        """The actor's twin, if its torso is a plain MLP of numbers."""
        known = _ARRAY_ACTORS.get(actor)
        if known is None or known.modules != tuple(actor._modules.values()):
            if not is_own_torso(actor.torso):
                return None
            known = _ARRAY_ACTORS[actor] = cls(actor)
        return known

    def sample(self, obs: Floats, generator: torch.Generator) -> Sampled:
        return self._sample(self.net.forward(obs), generator)

    def write_gradients(self, sampled: Sampled, to_actions: Floats, to_logprob: np.float32) -> None:
        self.net.backward(self._gradient(sampled, to_actions, to_logprob))


ARRAY_ACTORS: dict[type, tuple[Callable[..., Sampled], Callable[..., Floats]]] = {
    GaussianActor: (sample_squashed, squashed_gradient),
    PointActor: (sample_point, point_gradient),
}
_ARRAY_ACTORS: WeakKeyDictionary[Actor, Any] = WeakKeyDictionary()
