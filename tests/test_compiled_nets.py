"""Compiled networks say what the same networks in NumPy say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.kernels.compiled_nets import CompiledNet
from rl_training.kernels.nets import ArrayNet
from rl_training.kernels.tools.matmul import add_columns_product, matmul
from rl_training.models.mlp import MLP


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("width", [1, 15, 16, 31, 64, 83, 128])
@pytest.mark.parametrize("inputs", [1, 4, 17, 64])
def test_products_of_any_width(inputs: int, width: int) -> None:
    x, weight, y, out = numbers(30, inputs), numbers(inputs, width), numbers(30, width), numbers(inputs, width)
    product = np.empty((30, width), dtype=np.float32)
    matmul(x, weight, product)
    np.testing.assert_allclose(product, x @ weight, atol=1e-5)
    expected = out + x.T @ y
    add_columns_product(x, y, out)
    np.testing.assert_allclose(out, expected, atol=2e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sizes", [(64, 64), (20,), (64, 8, 33)])
def test_outputs_and_gradients_are_those_of_numpy(activation: str, sizes: tuple[int, ...]) -> None:
    """At numbers of rows below, at and above those that are computed together."""
    torch.manual_seed(0)
    mlp, last = MLP(5, sizes, activation), nn.Linear(sizes[-1], 3)
    parameters = [*mlp.parameters(), *last.parameters()]
    for parameter in parameters:
        parameter.data += 0.1 * torch.randn_like(parameter)
        parameter.grad = torch.zeros_like(parameter)
    ours, theirs = CompiledNet(mlp, last), ArrayNet(mlp, last)
    for rows in (1, 64, 100, 3):
        obs, delta = numbers(rows, 5), numbers(3, rows)
        np.testing.assert_allclose(ours.forward(obs), theirs.forward(obs), atol=1e-5)
        gradients = []
        for net in (ours, theirs):
            net.backward(delta.copy())
            gradients.append([parameter.grad.clone() for parameter in parameters])
        for own, other in zip(*gradients, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-4)


def test_many_rows_are_computed_in_parts() -> None:
    mlp, last = MLP(5, (64,), "tanh"), nn.Linear(64, 3)
    obs = numbers(3000, 5)
    np.testing.assert_allclose(CompiledNet(mlp, last)(obs), ArrayNet(mlp, last)(obs), atol=1e-5)
