"""Trees of arrays as tensors: equal numbers give equal bits, wherever NumPy has put them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces

from rl_training.data.trees import observation_buffers, to_observations, to_tensors


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy of the array that begins so many bytes behind a multiple of 64."""
    memory = np.zeros(array.nbytes + 128, dtype=np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("take", [to_tensors, to_observations])
def test_a_layer_answers_with_the_same_bits_wherever_its_input_lay(take: Any) -> None:
    """torch's products have other last bits for memory that begins elsewhere, and a seed would be many runs."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(16, 4, generator=generator)
    obs = torch.randn(2, 4, generator=generator).numpy()
    answers = [F.linear(take(placed(obs, offset)), weight) for offset in range(0, 64, 4)]
    assert all(torch.equal(answer, answers[0]) for answer in answers)


def test_buffers_of_observations_are_shared_and_not_copied() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float64), "b": spaces.MultiBinary(5)})
    buffers = observation_buffers(space, (7, 2))
    tensors = to_tensors(buffers)
    assert buffers["a"].dtype == np.float32
    for key in ("a", "b"):
        assert tensors[key].data_ptr() == buffers[key].ctypes.data
        assert buffers[key].shape == (7, 2, *space[key].shape)
        assert not buffers[key].any()
