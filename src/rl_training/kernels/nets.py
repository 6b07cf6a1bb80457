"""An MLP with a linear layer on it, in NumPy: its outputs, their gradients, and products with their curvature.

On small layers the dispatch of a torch op costs more than its arithmetic, and NumPy's vectorised tanh is several
times as fast as torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import nn

from rl_training.kernels.tools.arrays import Floats


def _tanh(x: Floats) -> None:
    np.tanh(x, out=x)


def _relu(x: Floats) -> None:
    """Compares with a row of zeros, which takes NumPy half the time of a comparison with one number."""
    np.maximum(x, np.zeros(x.shape[-1], dtype=x.dtype), out=x)


def _tanh_slope(y: Floats, out: Floats) -> None:
    """1 − y², the derivative at the point that gave `y`."""
    np.multiply(y, y, out=out)
    np.subtract(1.0, out, out=out)


def _relu_slope(y: Floats, out: Floats) -> None:
    np.greater(y, 0.0, out=out)


ARRAY_ACTIVATIONS = {"tanh": (_tanh, _tanh_slope), "relu": (_relu, _relu_slope)}


def hidden_layers(
    x: Floats, parameters: Sequence[Floats], activation: str, into: Sequence[Floats | None] | None = None
) -> list[Floats]:
    """The output of every layer, the input first; `parameters` are weight, bias, weight, bias, …"""
    activate, _ = ARRAY_ACTIVATIONS[activation]
    outputs = [x]
    into = into or [None] * (len(parameters) // 2)
    for weight, bias, buffer in zip(parameters[::2], parameters[1::2], into, strict=True):
        hidden = np.matmul(outputs[-1], weight.T, out=buffer)
        hidden += bias
        activate(hidden)
        outputs.append(hidden)
    return outputs


def hidden_gradients(
    outputs: list[Floats], parameters: Sequence[Floats], activation: str, delta: Floats, into: Sequence[Floats]
) -> Floats:
    """Writes the parameters' gradients, given the last output's; returns that before the first layer's activation.

    Overwrites the outputs, but for the input, and `delta`: fresh memory for a large batch costs as much as the maths.
    """
    _, slope = ARRAY_ACTIVATIONS[activation]
    ones = np.ones(len(delta), dtype=delta.dtype)
    for layer in range(len(outputs) - 2, -1, -1):
        output = outputs[layer + 1]
        slope(output, out=output)
        spare, delta = delta, np.multiply(delta, output, out=output)
        np.matmul(delta.T, outputs[layer], out=into[2 * layer])
        np.matmul(ones, delta, out=into[2 * layer + 1])  # a product sums columns faster than `sum` does
        if layer:
            weight = parameters[2 * layer]
            delta = np.matmul(delta, weight, out=spare if spare.shape[1] == weight.shape[1] else None)
    return delta


class ArrayNet:
    """A torso's MLP and the linear layer on it as functions of arrays that share the modules' memory.

    Observations are `[N, F]`, outputs `[K, N]`: what follows reduces over a few actions, and NumPy is quick over the
    long axis only. The parameters keep their identity; where they and their gradients lie is looked up when they have
    moved, as they do when an optimizer flattens them.
    """

    def __init__(self, mlp: nn.Module, last: nn.Linear) -> None:
        """`mlp` is an `MLP` with an activation that `ARRAY_ACTIVATIONS` has."""
        self._parameters = [*mlp.parameters(), *last.parameters()]
        self._activation = str(mlp.activation)
        self._places: list[int] = []
        self._arrays: list[Floats] = []
        self._grads: list[Floats] = []
        self._pairs: list[tuple[Floats, Floats]] = []
        self._buffers: list[Floats] = []
        self._layers: list[Floats] = []

    def arrays(self) -> list[Floats]:
        """Views of the parameters. They keep their memory alive, so an equal address is the same memory."""
        places = [p.data_ptr() for p in self._parameters]
        if places != self._places:
            self._places, self._arrays = places, [p.detach().numpy() for p in self._parameters]
            self._grads = [p.grad.numpy() for p in self._parameters if p.grad is not None]
            self._pairs = [(w.T, b) for w, b in zip(self._arrays[:-2:2], self._arrays[1:-2:2], strict=True)]
        return self._arrays

    def __call__(self, obs: Floats) -> Floats:
        weight, bias = self.arrays()[-2:]
        activate, _ = ARRAY_ACTIVATIONS[self._activation]
        for hidden_weight, hidden_bias in self._pairs:
            obs = obs @ hidden_weight
            obs += hidden_bias
            activate(obs)
        outputs = weight @ obs.T
        outputs += bias[:, None]
        return outputs

    def forward(self, obs: Floats) -> Floats:
        """Computes the outputs and keeps the layers for `backward`."""
        *hidden, weight, bias = self.arrays()
        *into, _ = self._space(len(obs))
        self._layers = hidden_layers(obs, hidden, self._activation, into)
        outputs = weight @ self._layers[-1].T
        outputs += bias[:, None]
        return outputs

    def backward(self, delta: Floats) -> None:
        """Writes the gradients of all parameters, given that of the last `forward`'s output."""
        self.arrays()
        *_, space = self._space(delta.shape[1])
        self._write_gradients(self._layers, delta, self._grads, space)

    def curvature(self, obs: Floats, metric: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        """v ↦ JᵀMJv, for the Jacobian J of the outputs by the flat parameters and M the `metric` of outputs."""
        *hidden, weight, _ = self.arrays()
        layers = hidden_layers(obs, hidden, self._activation)
        slopes = [np.empty_like(layer) for layer in layers[1:]]
        for layer, slope in zip(layers[1:], slopes, strict=True):
            ARRAY_ACTIVATIONS[self._activation][1](layer, slope)

        def product(vector: Floats) -> Floats:
            *changes, weight_change, bias_change = self._parts(vector)
            moved = np.zeros_like(obs)
            rows = zip(layers, slopes, hidden[::2], changes[::2], changes[1::2], strict=False)
            for below, slope, layer_weight, layer_change, layer_bias_change in rows:
                moved = moved @ layer_weight.T
                moved += below @ layer_change.T
                moved += layer_bias_change
                moved *= slope
            outputs = weight_change @ layers[-1].T + weight @ moved.T + bias_change[:, None]
            answer = np.empty_like(vector)
            used_up = [obs, *(layer.copy() for layer in layers[1:])]
            self._write_gradients(used_up, metric(outputs), self._parts(answer), None)
            return answer

        return product

    def _write_gradients(self, layers: list[Floats], delta: Floats, into: list[Floats], space: Floats | None) -> None:
        *hidden, weight, _ = self._arrays
        *into, to_weight, to_bias = into
        np.matmul(delta, layers[-1], out=to_weight)
        np.sum(delta, axis=1, out=to_bias)
        if hidden:
            hidden_gradients(layers, hidden, self._activation, np.matmul(delta.T, weight, out=space), into)

    def _parts(self, flat: Floats) -> list[Floats]:
        """Views of a vector, shaped as the parameters."""
        ends = np.cumsum([array.size for array in self._arrays])
        return [part.reshape(array.shape) for part, array in zip(np.split(flat, ends[:-1]), self._arrays, strict=True)]

    def _space(self, rows: int) -> list[Floats]:
        """Memory for every hidden layer and for a gradient of the last."""
        if not self._buffers or len(self._buffers[0]) < rows:
            widths = [len(weight) for weight in self._arrays[:-2:2]] + [self._arrays[-2].shape[1]]
            self._buffers = [np.empty((rows, width), dtype=np.float32) for width in widths]
        if len(self._buffers[0]) == rows:
            return self._buffers
        return [buffer[:rows] for buffer in self._buffers]
