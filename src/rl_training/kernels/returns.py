"""Kernels of returns and what is read beside them: on small arrays NumPy's calls cost more than the arithmetic."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats, as_array, suits_kernels
from rl_training.kernels.tools.compiled import compiled, exactly_compiled
from rl_training.ops import losses, returns

Flags = NDArray[np.bool_]
ZERO, ONE = np.float32(0.0), np.float32(1.0)


def rows_in_time(*columns: Tensor) -> bool:
    """`[T, B]` in float32 on the CPU."""
    return len(columns) == 3 and columns[0].dim() == 2 and all(suits_kernels(column) for column in columns)


@exactly_compiled
def _gae(
    rewards: Floats,
    values: Floats,
    next_values: Floats,
    terminated: Flags,
    done: Flags,
    gamma: np.float32,
    decay: np.float32,
    advantages: Floats,
) -> None:
    for t in range(len(rewards) - 1, -1, -1):
        for b in range(rewards.shape[1]):
            bootstrap = ZERO if terminated[t, b] else next_values[t, b]
            following = advantages[t + 1, b] if t + 1 < len(rewards) else ZERO
            trace = ZERO if done[t, b] else decay
            advantages[t, b] = rewards[t, b] + gamma * bootstrap - values[t, b] + trace * following


@replaces(returns.gae, when=rows_in_time, tolerance=0)
def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    columns = as_array(rewards), as_array(values), as_array(next_values)
    ends = terminated.contiguous().numpy(), done.contiguous().numpy()
    advantages = torch.empty(rewards.shape)
    _gae(*columns, *ends, np.float32(gamma), np.float32(gamma * gae_lambda), advantages.numpy())
    return advantages


def numbers_in_a_row(*columns: Tensor) -> bool:
    """Float32 `[N]` on the CPU."""
    return len(columns) == 2 and all(column.dim() == 1 and suits_kernels(column) for column in columns)


@replaces(losses.explained_variance, when=numbers_in_a_row, tolerance=1e-5)
def explained_variance(values: Tensor, targets: Tensor) -> np.floating:
    return _explained_variance(as_array(values), as_array(targets))


@compiled
def _explained_variance(values: Floats, targets: Floats) -> np.float32:
    rows, total, errors, low, high = len(targets), ZERO, ZERO, targets[0], targets[0]
    for row in range(rows):
        total += targets[row]
        errors += targets[row] - values[row]
        low, high = min(low, targets[row]), max(high, targets[row])
    if low == high:
        return ZERO
    mean, mean_error = total / np.float32(rows), errors / np.float32(rows)
    spread, missed = ZERO, ZERO
    for row in range(rows):
        spread += (targets[row] - mean) ** 2
        missed += (targets[row] - values[row] - mean_error) ** 2
    return ONE - missed / spread
