"""Everything beside the products of wide ReLU networks, compiled: each function goes over a layer once.

Hidden layers are `[N, H]`, outputs `[K, N]`. A product in float32 is in the layer already; one in bfloat16 comes as its
bits, and the numbers that such a product takes are written as bits too. Importing this loads numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.compiled_nets import linear
from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled, inlined

Bits = NDArray[np.uint16]
ZERO, HALF_BITS = np.float32(0.0), np.uint32(16)
ALMOST_HALF, LOWEST = np.uint32(0x7FFF), np.uint32(1)


@inlined
def widened(bits: np.uint16) -> np.float32:
    return np.uint32(np.uint32(bits) << HALF_BITS).view(np.float32)


@inlined
def rounded(x: np.float32) -> np.uint16:
    """The bits of the nearest bfloat16, of two the even one."""
    bits = np.float32(x).view(np.uint32)
    return np.uint16(np.uint32(bits + ALMOST_HALF + ((bits >> HALF_BITS) & LOWEST)) >> HALF_BITS)


@compiled
def activate(product: Bits | None, bias: Floats, hidden: Floats, bits: Bits | None) -> None:
    """Turns a product into ReLU(product + bias), in place where it is float32."""
    for row in range(hidden.shape[0]):
        if product is not None:
            for j in range(hidden.shape[1]):
                hidden[row, j] = widened(product[row, j])
        for j in range(hidden.shape[1]):
            x = hidden[row, j] + bias[j]
            hidden[row, j] = x if x > ZERO else ZERO
        if bits is not None:
            for j in range(hidden.shape[1]):
                bits[row, j] = rounded(hidden[row, j])


@compiled
def last_outputs(hidden: Floats, weight: Floats, bias: Floats) -> Floats:
    """The outputs `[K, N]` of the linear layer on the hidden ones."""
    outputs = np.empty((len(bias), len(hidden)), dtype=np.float32)
    linear(hidden, weight, bias, outputs)
    return outputs


@compiled
def last_gradients(delta: Floats, hidden: Floats, to_weight: Floats, to_bias: Floats) -> None:
    """Writes the gradients of the linear layer, given those of its outputs."""
    to_weight[:] = ZERO
    to_bias[:] = ZERO
    for row in range(len(hidden)):
        for k in range(len(delta)):
            to_bias[k] += delta[k, row]
            for j in range(hidden.shape[1]):
                to_weight[k, j] += delta[k, row] * hidden[row, j]


@compiled
def back_from_outputs(
    delta: Floats, weight: Floats, hidden: Floats, rows: NDArray[np.int64], back: Floats, bits: Bits | None
) -> None:
    """Writes the gradient of what the chosen rows of the last hidden layer activate, given those of their outputs."""
    for i in range(len(rows)):
        back[i] = ZERO
        for k in range(len(delta)):
            for j in range(hidden.shape[1]):
                back[i, j] += delta[k, i] * weight[k, j]
        before_relu(hidden[rows[i]], back[i])
        if bits is not None:
            for j in range(hidden.shape[1]):
                bits[i, j] = rounded(back[i, j])


@compiled
def back_from_product(
    product: Bits | None, hidden: Floats, rows: NDArray[np.int64], back: Floats, bits: Bits | None
) -> None:
    """Turns the product of a gradient with the weights below it into the same of the layer below."""
    for i in range(len(rows)):
        if product is not None:
            for j in range(hidden.shape[1]):
                back[i, j] = widened(product[i, j])
        before_relu(hidden[rows[i]], back[i])
        if bits is not None:
            for j in range(hidden.shape[1]):
                bits[i, j] = rounded(back[i, j])


@inlined
def before_relu(hidden: Floats, back: Floats) -> None:
    for j in range(len(hidden)):
        back[j] = back[j] if hidden[j] > ZERO else ZERO


@compiled
def column_sums(back: Floats, sums: Floats) -> None:
    sums[:] = ZERO
    for row in range(len(back)):
        for j in range(len(sums)):
            sums[j] += back[row, j]
