"""Action heads in NumPy, with gradients and Fisher matrices written by hand. Rows are the last axis, `[K, N]`.

Each stands for one head of `models.heads`: given the outputs of the head's linear layer, it draws the same actions from
the same random numbers, and says the same of actions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.kernels.tools.arrays import Floats
from rl_training.models.heads import HALF_LOG_2PI, BernoulliHead, CategoricalHead, GaussianHead

Actions = NDArray[Any]


class Said(NamedTuple):
    """A policy's numbers for one action of each row; `dist` `[N, P]` is what the plain head's `forward` gives."""

    logprobs: Floats
    entropy: Floats
    dist: Floats
    saved: Any  # for the gradient


class ArrayHead(Protocol):
    """`linear` is the layer whose outputs it takes; `extra` are the head's other parameters."""

    linear: nn.Linear
    extra: list[nn.Parameter]

    def mode(self, outputs: Floats) -> Actions: ...

    def sample(self, outputs: Floats, generator: torch.Generator | None) -> Actions: ...

    def distribution(self, outputs: Floats) -> Floats: ...

    def evaluate(self, outputs: Floats, actions: Actions) -> Said: ...

    def gradient(self, said: Said, to_logprobs: Floats, to_entropy: float) -> Floats:
        """The gradient by the outputs; that by the extra parameters is written to them."""

    def fisher(self, dist: Floats) -> tuple[Callable[[Floats], Floats], float]:
        """(v ↦ F v for outputs, the factor of the extra parameters), F the Hessian of the mean KL to itself."""


class Noise:
    """Memory for random numbers, which the plain head would draw into a tensor of the same shape."""

    def __init__(self) -> None:
        self._rows = 0
        self._tensor = torch.empty(0, device="cpu")

    def like(self, outputs: Floats) -> Tensor:
        """A tensor `[N, K]` for outputs `[K, N]`."""
        if outputs.shape[1] != self._rows:
            self._rows = outputs.shape[1]
            with torch.inference_mode(mode=False):  # it will be written to in other modes as well
                self._tensor = torch.empty(outputs.shape[::-1], device="cpu")
        return self._tensor


def log_softmax(logits: Floats) -> Floats:
    """Normalises logits over the first axis."""
    shifted = logits - logits.max(axis=0)
    shifted -= np.log(np.exp(shifted).sum(axis=0))
    return shifted


class ArrayCategorical:
    """One categorical, or several independent ones side by side."""

    def __init__(self, head: CategoricalHead) -> None:
        self.linear, self.joint = head.linear, head.joint
        self.extra: list[nn.Parameter] = []
        bounds = np.cumsum([0, *head.classes])
        self._parts = [slice(first, last) for first, last in pairwise(bounds)]
        self._noise = Noise()

    def mode(self, outputs: Floats) -> Actions:
        if not self.joint:
            return outputs.argmax(axis=0)
        return np.stack([outputs[part].argmax(axis=0) for part in self._parts], axis=1)

    def sample(self, outputs: Floats, generator: torch.Generator | None) -> Actions:
        noise = self._noise.like(outputs).exponential_(generator=generator).numpy()
        outputs -= np.log(noise.T)
        return self.mode(outputs)

    def distribution(self, outputs: Floats) -> Floats:
        return self._normalized(outputs).T

    def evaluate(self, outputs: Floats, actions: Actions) -> Said:
        dist = self._normalized(outputs)
        probs = np.exp(dist)
        rows = np.arange(outputs.shape[1])
        columns = actions.T if self.joint else actions[None]
        chosen = [(part.start + column, rows) for part, column in zip(self._parts, columns, strict=True)]
        products = probs * dist
        entropies = [-products[part].sum(axis=0) for part in self._parts]
        logprobs = dist[chosen[0]] if len(chosen) == 1 else np.sum([dist[place] for place in chosen], axis=0)
        entropy = entropies[0] if len(entropies) == 1 else np.sum(entropies, axis=0)
        return Said(logprobs, entropy, dist.T, (dist, probs, chosen, entropies))

    def gradient(self, said: Said, to_logprobs: Floats, to_entropy: float) -> Floats:
        """g (1[a] − p) for the log-probability, −g p (log p + H) for the entropy H, of each categorical."""
        dist, probs, chosen, entropies = said.saved
        if len(entropies) == 1:
            weights = dist + entropies[0]
        else:
            weights = dist + np.concatenate(
                [
                    np.broadcast_to(entropy, dist[part].shape)
                    for part, entropy in zip(self._parts, entropies, strict=True)
                ]
            )
        weights *= to_entropy
        weights += to_logprobs
        weights *= -probs
        for place in chosen:
            weights[place] += to_logprobs
        return weights

    def fisher(self, dist: Floats) -> tuple[Callable[[Floats], Floats], float]:
        """t ↦ (diag p − p pᵀ) t / N, of each categorical."""
        probs = np.exp(dist.T)
        share = np.float32(1.0 / probs.shape[1])

        def product(moved: Floats) -> Floats:
            weighted = probs * moved
            for part in self._parts:
                weighted[part] -= probs[part] * weighted[part].sum(axis=0)
            weighted *= share
            return weighted

        return product, 0.0

    def loss(self, outputs: Floats, actions: Actions, *rest: Any) -> Any:
        """The answer of `compiled_losses` for one categorical."""
        from rl_training.kernels.compiled_losses import categorical  # it loads numba

        return categorical(outputs, actions, *rest)

    def _normalized(self, outputs: Floats) -> Floats:
        if not self.joint:
            return log_softmax(outputs)
        return np.concatenate([log_softmax(outputs[part]) for part in self._parts])


class ArrayBernoulli:
    """Independent bits."""

    def __init__(self, head: BernoulliHead) -> None:
        self.linear = head.linear
        self.extra: list[nn.Parameter] = []
        self._noise = Noise()

    def mode(self, outputs: Floats) -> Actions:
        return (outputs.T > 0).astype(np.int8)

    def sample(self, outputs: Floats, generator: torch.Generator | None) -> Actions:
        uniform = self._noise.like(outputs).uniform_(generator=generator).numpy()
        return (uniform < _sigmoid(outputs).T).astype(np.int8)

    def distribution(self, outputs: Floats) -> Floats:
        return outputs.T

    def evaluate(self, outputs: Floats, actions: Actions) -> Said:
        bits = actions.T.astype(np.float32)
        chances = _sigmoid(outputs)
        log_one, log_zero = -np.logaddexp(np.float32(0.0), -outputs), -np.logaddexp(np.float32(0.0), outputs)
        logprobs = (bits * log_one + (1 - bits) * log_zero).sum(axis=0)
        entropy = -(chances * log_one + (1 - chances) * log_zero).sum(axis=0)
        return Said(logprobs, entropy, outputs.T, (outputs, chances, bits))

    def gradient(self, said: Said, to_logprobs: Floats, to_entropy: float) -> Floats:
        """g (bit − p) for the log-probability, −g x p (1 − p) for the entropy."""
        outputs, chances, bits = said.saved
        return to_logprobs * (bits - chances) - np.float32(to_entropy) * outputs * chances * (1 - chances)

    def fisher(self, dist: Floats) -> tuple[Callable[[Floats], Floats], float]:
        chances = _sigmoid(dist.T)
        weights = chances * (1 - chances) * np.float32(1.0 / chances.shape[1])
        return lambda moved: weights * moved, 0.0


class ArrayGaussian:
    """Independent Gaussians with deviations of their own, whatever the state."""

    def __init__(self, head: GaussianHead) -> None:
        self.linear, self.extra = head.linear, [head.log_std]
        self._log_std, self._shape = head.log_std, head.action_shape
        self._noise = Noise()

    def mode(self, outputs: Floats) -> Actions:
        return np.ascontiguousarray(outputs.T).reshape(-1, *self._shape)

    def sample(self, outputs: Floats, generator: torch.Generator | None) -> Actions:
        noise = self._noise.like(outputs).normal_(generator=generator).numpy()
        return (outputs.T + np.exp(self._deviations()) * noise).reshape(-1, *self._shape)

    def distribution(self, outputs: Floats) -> Floats:
        means = outputs.T
        return np.concatenate([means, np.broadcast_to(self._deviations(), means.shape)], axis=1)

    def evaluate(self, outputs: Floats, actions: Actions) -> Said:
        log_std = self._deviations()
        inverse = np.exp(-log_std)[:, None]
        z = (actions.reshape(len(actions), -1).T - outputs) * inverse
        constant = log_std.sum() + np.float32(len(log_std) * HALF_LOG_2PI)
        logprobs = np.float32(-0.5) * (z * z).sum(axis=0) - constant
        entropy = np.full(outputs.shape[1], constant + np.float32(0.5 * len(log_std)), dtype=np.float32)
        return Said(logprobs, entropy, self.distribution(outputs), (z, inverse))

    def gradient(self, said: Said, to_logprobs: Floats, to_entropy: float) -> Floats:
        """g z / σ for the means; g (z² − 1) and the entropy's own for the logarithms of the deviations."""
        z, inverse = said.saved
        pulled = z * to_logprobs
        assert self._log_std.grad is not None
        to_log_std = (pulled * z).sum(axis=1) - to_logprobs.sum() + np.float32(to_entropy * z.shape[1])
        self._log_std.grad.numpy()[...] = to_log_std
        pulled *= inverse
        return pulled

    def fisher(self, dist: Floats) -> tuple[Callable[[Floats], Floats], float]:
        """1/σ² for the means, 2 for the logarithms of the deviations; the one does not touch the other."""
        inverse_variance = np.exp(-2.0 * self._deviations()).astype(np.float32)[:, None] * np.float32(1.0 / len(dist))
        return lambda moved: inverse_variance * moved, 2.0

    def loss(self, outputs: Floats, actions: Actions, *rest: Any) -> Any:
        """The answer of `compiled_losses`; the gradient by the deviations is written to them."""
        from rl_training.kernels.compiled_losses import gaussian  # it loads numba

        assert self._log_std.grad is not None
        rows = actions.reshape(len(actions), -1)
        return gaussian(outputs, rows, self._deviations(), self._log_std.grad.numpy(), *rest)

    def _deviations(self) -> Floats:
        return self._log_std.detach().numpy()


def _sigmoid(x: Floats) -> Floats:
    return np.float32(1.0) / (np.float32(1.0) + np.exp(-x))


ARRAY_HEADS: dict[type, Callable[[Any], ArrayHead]] = {
    CategoricalHead: ArrayCategorical,
    BernoulliHead: ArrayBernoulli,
    GaussianHead: ArrayGaussian,
}
