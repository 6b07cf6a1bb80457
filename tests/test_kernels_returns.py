"""The kernels of returns give what their plain twins give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.kernels import using
from rl_training.kernels.returns import numbers_in_a_row, rows_in_time
from rl_training.ops.losses import explained_variance
from rl_training.ops.returns import gae


def rollout(rows: int, envs: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Rewards, values and next values, strided, and the ends."""
    terminated = torch.rand(rows, envs) < 0.2
    ends = {"terminated": terminated, "done": terminated | (torch.rand(rows, envs) < 0.2)}
    return [torch.randn(envs, rows).T for _ in range(3)], ends


def both(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What the function gives with kernels and without."""
    found = []
    for mode in ("auto", "off"):
        with using(mode):
            found.append(function(*args, **kwargs))
    return found[0], found[1]


@pytest.mark.parametrize(("rows", "envs"), [(1, 1), (5, 8), (64, 3)])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.9, 1.0])
def test_advantages_have_the_same_bits(rows: int, envs: int, gae_lambda: float) -> None:
    columns, ends = rollout(rows, envs)
    assert rows_in_time(*columns)
    ours, plain = both(gae, *columns, **ends, gamma=0.99, gae_lambda=gae_lambda)
    assert torch.equal(ours, plain)
    assert ours.dtype == plain.dtype


def test_the_value_of_a_terminal_state_is_not_read() -> None:
    (rewards, values, next_values), ends = rollout(6, 4)
    next_values = torch.where(ends["terminated"], torch.nan, next_values)
    ours, plain = both(gae, rewards, values, next_values, **ends, gamma=0.99, gae_lambda=0.9)
    assert ours.isfinite().all()
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("rows", [2, 40, 2048])
def test_explained_variance_is_the_same(rows: int) -> None:
    targets = 5.0 + torch.randn(rows)
    values = targets + 0.5 * torch.randn(rows)
    assert numbers_in_a_row(values, targets)
    ours, plain = both(explained_variance, values, targets)
    assert ours == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("targets", [torch.full((7,), 0.1), torch.full((1,), 3.0)])
def test_constant_targets_have_nothing_to_explain(targets: Tensor) -> None:
    assert both(explained_variance, torch.randn(len(targets)), targets) == (0.0, 0.0)


def test_a_target_that_is_not_finite_is_not_hidden() -> None:
    targets = torch.tensor([1.0, float("inf"), 2.0])
    ours, plain = both(explained_variance, torch.zeros(3), targets)
    assert not ours < 1.0
    assert not plain < 1.0


def test_other_shapes_and_types_take_the_plain_path() -> None:
    row, table = torch.zeros(3), torch.zeros(3, 2)
    assert not rows_in_time(row, row, row)
    assert not rows_in_time(table.double(), table.double(), table.double())
    assert not rows_in_time()  # a call by keywords
    assert not numbers_in_a_row(table, table)
    assert not numbers_in_a_row(row.double(), row)
