"""SiLU(RMSNorm(x)) and its gradient, compiled: one pass over each row where torch makes seven.

Arrays are `[R, G, W]`: rows, groups that are normed apart, their width; `scale` is `[G, W]`.
"""

from __future__ import annotations

import math

import numpy as np

from rl_training.compiled import compiled
from rl_training.ops.arrays import Floats
from rl_training.ops.elementary import ONE, sigmoid


@compiled
def forward(x: Floats, scale: Floats, eps: float, output: Floats, inverse: Floats) -> None:
    """`inverse` `[R, G]` is one over the root mean square."""
    rows, groups, width = x.shape
    for r in range(rows):
        for g in range(groups):
            row, factors, out = x[r, g], scale[g], output[r, g]
            squares = np.float32(0.0)
            for i in range(width):
                squares += row[i] * row[i]
            shrink = ONE / np.float32(math.sqrt(squares / np.float32(width) + np.float32(eps)))
            inverse[r, g] = shrink
            for i in range(width):
                scaled = row[i] * shrink * factors[i]
                out[i] = scaled * sigmoid(scaled)


@compiled
def backward(grad: Floats, x: Floats, scale: Floats, inverse: Floats, to_x: Floats, to_scale: Floats) -> None:
    """Adds to `to_scale`, writes `to_x`."""
    rows, groups, width = x.shape
    for r in range(rows):
        for g in range(groups):
            row, factors, out, along, shrink = x[r, g], scale[g], to_x[r, g], to_scale[g], inverse[r, g]
            above, total = grad[r, g], np.float32(0.0)
            for i in range(width):
                normed = row[i] * shrink
                scaled = normed * factors[i]
                gate = sigmoid(scaled)
                slope = above[i] * gate * (ONE + scaled * (ONE - gate))
                along[i] += slope * normed
                out[i] = slope * factors[i]
                total += out[i] * normed
            mean = total / np.float32(width)
            for i in range(width):
                out[i] = (out[i] - row[i] * shrink * mean) * shrink
