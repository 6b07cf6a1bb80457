"""Conjugate gradient, Fisher-vector products, step length and line search, against explicit matrices."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.models.heads import ActionHead, make_head
from rl_training.ops.trust_region import (
    backtracking_line_search,
    conjugate_gradient,
    flat_gradient,
    hessian_vector_product,
    trust_region_step,
)

SPACES = {
    "discrete": gym.spaces.Discrete(3),
    "box": gym.spaces.Box(-1, 1, (2,), np.float32),
    "multi_discrete": gym.spaces.MultiDiscrete([2, 3]),
    "multi_binary": gym.spaces.MultiBinary(2),
}


def spd_matrix(size: int, seed: int = 0) -> Tensor:
    root = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return root @ root.T + 0.1 * torch.eye(size, dtype=torch.float64)


def mean_kl(head: ActionHead, features: Tensor, parameters: Tensor) -> Tensor:
    """KL from the head as it is to the head with these parameters, as a function of them."""
    named, pieces, begin = dict(head.named_parameters()), {}, 0
    for name, parameter in named.items():
        pieces[name] = parameters[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    new = torch.func.functional_call(head, pieces, features)
    return head.kl(head(features).detach(), new).mean()


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_fisher_vector_product_is_the_hessian_of_the_kl_times_the_vector(space: gym.Space) -> None:
    torch.manual_seed(0)
    head = make_head(space, 3).double()
    features = torch.randn(20, 3, dtype=torch.float64)
    parameters = list(head.parameters())
    point = torch.cat([p.detach().reshape(-1) for p in parameters])
    hessian = torch.autograd.functional.hessian(lambda v: mean_kl(head, features, v), point)
    dist = head(features)
    product = hessian_vector_product(head.kl(dist.detach(), dist).mean(), parameters)
    vector = torch.randn(len(point), dtype=torch.float64)
    torch.testing.assert_close(product(vector), hessian @ vector)
    assert torch.linalg.eigvalsh(hessian).min() > -1e-10
    assert flat_gradient(head.kl(head(features).detach(), head(features)).mean(), parameters).abs().max() < 1e-12


@pytest.mark.parametrize("size", [1, 4, 10])
def test_conjugate_gradient_is_exact_after_n_iterations(size: int) -> None:
    matrix, target = spd_matrix(size), torch.ones(size, dtype=torch.float64)
    solution = conjugate_gradient(lambda v: matrix @ v, target, iterations=size, tolerance=0.0)
    assert (matrix @ solution - target).norm() < 1e-8


def test_conjugate_gradient_by_hand() -> None:
    # A = diag(1, 3), b = (1, 1): the first step is b * (bᵀb / bᵀAb) = (1/2, 1/2), the second ends at (1, 1/3).
    matrix, target = torch.diag(torch.tensor([1.0, 3.0])), torch.ones(2)
    for iterations, expected in ((0, [0.0, 0.0]), (1, [0.5, 0.5]), (2, [1.0, 1 / 3]), (9, [1.0, 1 / 3])):
        solution = conjugate_gradient(lambda v: matrix @ v, target, iterations=iterations)
        assert solution.tolist() == pytest.approx(expected, abs=1e-6)


def test_conjugate_gradient_does_not_take_a_small_target_for_none() -> None:
    solution = conjugate_gradient(lambda v: 2.0 * v, torch.full((3,), 1e-8), iterations=3)
    assert solution.tolist() == pytest.approx([5e-9] * 3)


def test_conjugate_gradient_of_nothing_is_nothing() -> None:
    assert conjugate_gradient(lambda v: v, torch.zeros(3), iterations=5).tolist() == [0.0, 0.0, 0.0]


def test_the_step_spends_the_whole_trust_region() -> None:
    matrix, direction = spd_matrix(4), torch.ones(4, dtype=torch.float64)
    step = trust_region_step(direction, lambda v: matrix @ v, max_kl=0.01)
    assert 0.5 * step @ matrix @ step == pytest.approx(0.01)
    assert trust_region_step(direction * 0, lambda v: matrix @ v, max_kl=0.01).tolist() == [0.0] * 4


def parabola(point: Tensor) -> tuple[float, float]:
    """Best at 1; the KL is the squared distance from 0."""
    return 1.0 - (point.item() - 1.0) ** 2, point.item() ** 2


@pytest.mark.parametrize(
    ("length", "max_kl", "tried", "reached"),
    [
        (1.0, 9.0, 1, 1.0),  # accepted at once
        (4.0, 9.0, 3, 1.0),  # 4 and 2 do not raise the objective of 0: 1 does
        (1.0, 0.3, 2, 0.5),  # 1 is better and too far, 0.5 is near enough
    ],
)
def test_the_line_search_halves_until_both_conditions_hold(
    length: float, max_kl: float, tried: int, reached: float
) -> None:
    search = backtracking_line_search(
        parabola, torch.zeros(1), torch.tensor([length]), objective=0.0, max_kl=max_kl, shrink=0.5
    )
    assert (search.accepted, search.tried, search.point.item()) == (True, tried, reached)
    assert search.gain == pytest.approx(parabola(search.point)[0])
    assert search.kl == pytest.approx(reached**2)


@pytest.mark.parametrize("evaluate", [lambda p: (-1.0, 0.0), lambda p: (1.0, 9.0), lambda p: (float("nan"), 0.0)])
def test_a_search_that_fails_stays_where_it_began(evaluate: object) -> None:
    start = torch.tensor([0.3])
    search = backtracking_line_search(evaluate, start, torch.ones(1), objective=0.0, max_kl=0.1, attempts=4)  # type: ignore[arg-type]
    assert search.point is start
    assert (search.accepted, search.gain, search.kl, search.tried) == (False, 0.0, 0.0, 4)
