"""Wide ReLU networks without autograd: their products by the libraries, all that is beside them compiled.

The products take most of the time, and push everything else out of the caches: few passes over the layers, in memory
that is kept, are what can be saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.kernels import compiled_dense as passes
from rl_training.kernels.compiled_dense import Bits
from rl_training.kernels.tools.arrays import Floats
from rl_training.models.critics import EnsembleLinear


class Parameters(NamedTuple):
    """A layer's weight `[in, out]` and bias with their gradients; they share the memory of a module."""

    weight: Tensor
    bias: Tensor
    to_weight: Tensor | None
    to_bias: Tensor | None


def of_linear(layer: nn.Linear) -> Parameters:
    to_weight = layer.weight.grad
    return Parameters(
        layer.weight.detach().t(), layer.bias.detach(), None if to_weight is None else to_weight.t(), layer.bias.grad
    )


def of_member(layer: EnsembleLinear, member: int) -> Parameters:
    weight, bias = layer.weight.detach()[member], layer.bias.detach()[member, 0]
    if layer.weight.grad is None or layer.bias.grad is None:
        return Parameters(weight, bias, None, None)
    return Parameters(weight, bias, layer.weight.grad[member], layer.bias.grad[member, 0])


def place(layer: nn.Linear | EnsembleLinear) -> tuple[int, int]:
    """Where the parameters are: they move when an optimizer flattens them."""
    weight = layer.weight
    return weight.data_ptr(), 0 if weight.grad is None else weight.grad.data_ptr()


class Space(NamedTuple):
    """Numbers `[N, H]` of a layer; and in bfloat16, where a product needs them so."""

    full: Floats
    low: Tensor | None = None
    bits: Bits | None = None

    @classmethod
    def empty(cls, rows: int, width: int, *, is_low: bool) -> Space:
        low = torch.empty(rows, width, dtype=torch.bfloat16) if is_low else None
        return cls(np.empty((rows, width), dtype=np.float32), low, None if low is None else bits_of(low))

    def first(self, rows: int) -> Space:
        if rows == len(self.full):
            return self
        parts = (None if part is None else part[:rows] for part in (self.low, self.bits))
        return Space(self.full[:rows], *parts)  # type: ignore[arg-type]


def bits_of(low: Tensor) -> Bits:
    return low.view(torch.uint16).numpy()


class Product:
    """The products of a layer's weight, in float32. They are written into `out`."""

    is_low = False

    def __init__(self, parameters: Parameters) -> None:
        self._weight = parameters.weight
        self._array = parameters.weight.numpy()
        # `Linear` keeps `[out, in]`, and a product is quickest in the order in which its answer is kept.
        self._is_turned = parameters.weight.stride(0) == 1
        to_weight: Any = parameters.to_weight  # None in networks that only follow others
        self._to_weight = to_weight.t() if to_weight is not None and self._is_turned else to_weight
        self._to_array = None if to_weight is None else self._to_weight.numpy()

    def forward(self, x: Space, out: Floats) -> Bits | None:
        np.matmul(x.full, self._array, out=out)
        return None

    def back(self, delta: Space, out: Floats) -> Bits | None:
        np.matmul(delta.full, self._array.T, out=out)
        return None

    def write_gradient(self, x: Space, delta: Space) -> None:
        left, right = (delta, x) if self._is_turned else (x, delta)
        np.matmul(left.full.T, right.full, out=self._to_array)


class BFloat16Product(Product):
    """The products in bfloat16. They are returned as bits."""

    is_low = True
    _low: Tensor  # the weight as it was in the last `forward`

    def forward(self, x: Space, out: Floats) -> Bits | None:
        self._low = self._weight.bfloat16()
        return bits_of(torch.mm(x.low, self._low))  # type: ignore[arg-type]

    def back(self, delta: Space, out: Floats) -> Bits | None:
        return bits_of(torch.mm(delta.low, self._low.t()))  # type: ignore[arg-type]

    def write_gradient(self, x: Space, delta: Space) -> None:
        left, right = (delta, x) if self._is_turned else (x, delta)
        self._to_weight.copy_(torch.mm(left.low.t(), right.low))  # type: ignore[union-attr, arg-type]


class DenseNet:
    """Hidden layers with ReLU, one at least, and a linear one on them."""

    def __init__(self, layers: list[Parameters], *, in_bfloat16: bool) -> None:
        """With `in_bfloat16`, so are the products between hidden layers."""
        *hidden, last = layers
        self._products = [BFloat16Product(p) if i and in_bfloat16 else Product(p) for i, p in enumerate(hidden)]
        self._biases = [layer.bias.numpy() for layer in hidden]
        self._to_biases = [layer.to_bias.numpy() for layer in hidden if layer.to_bias is not None]
        self._from_inputs = hidden[0].weight.numpy()
        self._weight, self._bias = last.weight.numpy().T, last.bias.numpy()
        self._to_last = [part.numpy().T for part in (last.to_weight, last.to_bias) if part is not None]
        self._layers: list[Space] = []  # of the last `forward`, its inputs first
        self._kept: list[Space] = []
        self._backs: list[Space] = []
        self._all_rows = np.arange(0)

    def forward(self, x: Floats) -> Floats:
        """The outputs `[K, N]`; the layers are kept for what comes back."""
        self._make_space(len(x))
        self._layers = [Space(x), *self._kept]
        for index, product in enumerate(self._products):
            hidden = self._kept[index]
            bits = product.forward(self._layers[index], hidden.full)
            passes.activate(bits, self._biases[index], hidden.full, hidden.bits)
        return passes.last_outputs(hidden.full, self._weight, self._bias)

    def write_gradients(self, delta: Floats) -> None:
        """Writes the gradients of all parameters, given those of the outputs `[K, N]`."""
        passes.last_gradients(delta, self._layers[-1].full, *self._to_last)
        for index, back in self._backwards(delta, self._all_rows):
            self._products[index].write_gradient(self._layers[index], back)
            passes.column_sums(back.full, self._to_biases[index])

    def input_gradients(self, delta: Floats, rows: NDArray[np.int64], first: int) -> Floats:
        """The gradients of the chosen rows' inputs from column `first` on, given those of their outputs."""
        *_, (_, back) = self._backwards(delta, rows)
        return back.full @ self._from_inputs[first:].T

    def _backwards(self, delta: Floats, rows: NDArray[np.int64]) -> Iterator[tuple[int, Space]]:
        """Each hidden layer from the last on, with the gradient of what the chosen rows activate there."""
        top = len(self._products) - 1
        back = self._backs[top].first(len(rows))
        passes.back_from_outputs(delta, self._weight, self._kept[top].full, rows, back.full, back.bits)
        yield top, back
        for index in range(top - 1, -1, -1):
            above, back = back, self._backs[index].first(len(rows))
            product = self._products[index + 1].back(above, back.full)
            passes.back_from_product(product, self._kept[index].full, rows, back.full, back.bits)
            yield index, back

    def _make_space(self, rows: int) -> None:
        if len(self._all_rows) == rows:
            return
        low = [*(product.is_low for product in self._products), False]
        widths = [len(bias) for bias in self._biases]
        self._kept = [Space.empty(rows, width, is_low=above) for width, above in zip(widths, low[1:], strict=True)]
        self._backs = [Space.empty(rows, width, is_low=own) for width, own in zip(widths, low[:-1], strict=True)]
        self._all_rows = np.arange(rows)
