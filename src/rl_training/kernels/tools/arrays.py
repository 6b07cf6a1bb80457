"""Tensors as the arrays that compiled kernels read and write."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]


def suits_kernels(x: Tensor) -> bool:
    """Float32 on the CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32


def as_array(x: Tensor) -> Floats:
    """Contiguous, without a copy where it is so already."""
    return np.ascontiguousarray(x.detach().numpy())


def as_rows(x: Tensor, *shape: int) -> Floats:
    return as_array(x).reshape(shape)


def as_tensor(x: Floats, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(x.reshape(shape))
