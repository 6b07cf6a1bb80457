"""The gates of a GRU and their gradient, compiled: one pass where torch makes nine.

`gates` `[R, 3W]` are reset, candidate and update side by side, the others `[R, W]`.
"""

from __future__ import annotations

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import ONE, sigmoid, tanh


@compiled
def forward(gates: Floats, state: Floats, output: Floats) -> None:
    rows, width = state.shape
    for r in range(rows):
        resets, candidates, updates = gates[r, :width], gates[r, width : 2 * width], gates[r, 2 * width :]
        before, after = state[r], output[r]
        for i in range(width):
            candidate = tanh(sigmoid(resets[i]) * candidates[i])
            after[i] = before[i] + sigmoid(updates[i] - ONE) * (candidate - before[i])


@compiled
def backward(grad: Floats, gates: Floats, state: Floats, to_gates: Floats, to_state: Floats) -> None:
    rows, width = state.shape
    for r in range(rows):
        resets, candidates, updates = gates[r, :width], gates[r, width : 2 * width], gates[r, 2 * width :]
        to_resets, to_candidates = to_gates[r, :width], to_gates[r, width : 2 * width]
        to_updates = to_gates[r, 2 * width :]
        above, before, to_before = grad[r], state[r], to_state[r]
        for i in range(width):
            reset, update = sigmoid(resets[i]), sigmoid(updates[i] - ONE)
            candidate = tanh(reset * candidates[i])
            to_product = above[i] * update * (ONE - candidate * candidate)
            to_candidates[i] = to_product * reset
            to_resets[i] = to_product * candidates[i] * reset * (ONE - reset)
            to_updates[i] = above[i] * (candidate - before[i]) * update * (ONE - update)
            to_before[i] = above[i] * (ONE - update)
