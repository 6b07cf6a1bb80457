"""MLPs with a linear layer on them in compiled code: their outputs, and the gradients of their parameters.

NumPy's calls cost more than the arithmetic of the small networks that most policies are. Importing this loads numba.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from rl_training.kernels.nets import ArrayNet
from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled, inlined
from rl_training.kernels.tools.elementary import tanh
from rl_training.kernels.tools.matmul import add_columns_product, matmul

Arrays = tuple[Floats, ...]

CHUNK = 1024  # rows whose layers are in memory at a time where nobody wants to keep them
BLOCK = 64  # rows that gradients are computed of at a time: they stay in the nearest cache
ZERO, ONE = np.float32(0.0), np.float32(1.0)


class CompiledNet(ArrayNet):
    """An `ArrayNet` with one hidden layer at least, whose outputs and gradients are compiled."""

    def __init__(self, mlp: nn.Module, last: nn.Linear) -> None:
        super().__init__(mlp, last)
        self._is_tanh = self._activation == "tanh"
        self._kept: Arrays = ()
        self._weights: Arrays = ()
        self._biases: Arrays = ()

    def arrays(self) -> list[Floats]:
        known, arrays = self._arrays, super().arrays()
        if arrays is not known:
            self._weights, self._biases = tuple(arrays[::2]), tuple(arrays[1::2])
        return arrays

    def __call__(self, obs: Floats) -> Floats:
        if len(obs) <= CHUNK:
            return self.forward(obs)
        return np.concatenate([self.forward(obs[i : i + CHUNK]) for i in range(0, len(obs), CHUNK)], axis=1)

    def forward(self, obs: Floats) -> Floats:
        self.arrays()
        obs, hidden = np.ascontiguousarray(obs), self._hidden(len(obs))
        outputs = np.empty((len(self._biases[-1]), len(obs)), dtype=np.float32)
        forward(obs, self._weights, self._biases, self._is_tanh, hidden, outputs)
        self._layers = [obs, *hidden]
        return outputs

    def backward(self, delta: Floats) -> None:
        self.arrays()
        obs, *hidden = self._layers
        grads = self._grads
        delta = np.ascontiguousarray(delta)
        backward(obs, tuple(hidden), self._weights, self._is_tanh, delta, tuple(grads[::2]), tuple(grads[1::2]))

    def _hidden(self, rows: int) -> Arrays:
        """Memory for the hidden layers."""
        if not self._kept or len(self._kept[0]) != rows:
            self._kept = tuple(self._space(rows)[:-1])
        return self._kept


@compiled
def transposed(weight: Floats) -> Floats:
    rows, columns = weight.shape
    turned = np.empty((columns, rows), dtype=np.float32)
    for i in range(rows):
        for j in range(columns):
            turned[j, i] = weight[i, j]
    return turned


@compiled
def forward(x: Floats, weights: Arrays, biases: Arrays, is_tanh: bool, layers: Arrays, outputs: Floats) -> None:
    """Writes the hidden layers `[N, H]`, and the outputs `[K, N]` of the linear layer on them."""
    below = x
    for index in range(len(layers)):
        layer, bias = layers[index], biases[index]
        matmul(below, transposed(weights[index]), layer)
        for row in range(len(layer)):
            if is_tanh:
                for j in range(len(bias)):
                    layer[row, j] = tanh(layer[row, j] + bias[j])
            else:
                for j in range(len(bias)):
                    layer[row, j] = max(layer[row, j] + bias[j], ZERO)
        below = layer
    linear(below, weights[-1], biases[-1], outputs)


@inlined
def linear(below: Floats, weight: Floats, bias: Floats, outputs: Floats) -> None:
    """Writes the outputs `[K, N]` of a linear layer of few."""
    for row in range(len(below)):
        for k in range(len(bias)):
            total = ZERO
            for j in range(weight.shape[1]):
                total += weight[k, j] * below[row, j]
            outputs[k, row] = total + bias[k]


@compiled
def backward(
    x: Floats,
    layers: Arrays,
    weights: Arrays,
    is_tanh: bool,
    delta: Floats,
    weight_grads: Arrays,
    bias_grads: Arrays,
) -> None:
    """Writes the gradients of all parameters, given `delta` `[K, N]`, that of the outputs."""
    hidden = 0
    for index in range(len(weights)):
        weight_grads[index][:] = ZERO
        bias_grads[index][:] = ZERO
        hidden += weights[index].size
    # Gradients of hidden weights are summed in transposed form, whose rows are as long as tiles want them.
    sums = np.zeros(hidden - weights[-1].size, dtype=np.float32)
    for start in range(0, len(x), BLOCK):
        stop = min(start + BLOCK, len(x))
        above = np.empty((stop - start, weights[-1].shape[1]), dtype=np.float32)
        last_layer(delta, start, layers[-1], weights[-1], weight_grads[-1], bias_grads[-1], above)
        end = len(sums)
        for index in range(len(layers) - 1, -1, -1):
            before_activation(layers[index], start, is_tanh, above, bias_grads[index])
            below = x[start:stop] if index == 0 else layers[index - 1][start:stop]
            begin = end - weights[index].size
            add_columns_product(below, above, sums[begin:end].reshape((below.shape[1], above.shape[1])))
            end = begin
            if index:
                deeper = np.empty((stop - start, below.shape[1]), dtype=np.float32)
                matmul(above, weights[index], deeper)
                above = deeper
    end = 0
    for index in range(len(layers)):
        grad = weight_grads[index]
        for j in range(grad.shape[1]):
            for i in range(grad.shape[0]):
                grad[i, j] = sums[end + i]
            end += grad.shape[0]


@inlined
def last_layer(
    delta: Floats, start: int, layer: Floats, weight: Floats, to_weight: Floats, to_bias: Floats, above: Floats
) -> None:
    """Adds the gradients of the linear layer's parameters, and writes that of the rows `above` which it sees."""
    above[:] = ZERO
    for k in range(len(delta)):
        for row in range(len(above)):
            slope = delta[k, start + row]
            to_bias[k] += slope
            for j in range(above.shape[1]):
                above[row, j] += slope * weight[k, j]
                to_weight[k, j] += slope * layer[start + row, j]


@inlined
def before_activation(layer: Floats, start: int, is_tanh: bool, above: Floats, to_bias: Floats) -> None:
    """Turns the gradient of a layer's outputs into that of what it activates, whose sum is the bias's."""
    for row in range(len(above)):
        for j in range(above.shape[1]):
            y = layer[start + row, j]
            if is_tanh:
                above[row, j] *= ONE - y * y
            elif y <= ZERO:
                above[row, j] = ZERO
            to_bias[j] += above[row, j]
