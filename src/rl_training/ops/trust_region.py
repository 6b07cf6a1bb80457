"""The natural-gradient step of TRPO, on flat vectors: conjugate gradient, step length, line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

VectorProduct = Callable[[Tensor], Tensor]


def hessian_vector_product(scalar: Tensor, parameters: Sequence[Tensor]) -> VectorProduct:
    """v ↦ H v with H the Hessian of the scalar, by differentiating its gradient's product with v.

    Of the mean KL from a policy to itself, H is the Fisher matrix (Schulman et al., 2015, appendix C).
    """
    gradient = flat_gradient(scalar, parameters, create_graph=True)

    def product(vector: Tensor) -> Tensor:
        return flat_gradient(gradient @ vector, parameters, retain_graph=True)

    return product


def flat_gradient(
    scalar: Tensor, parameters: Sequence[Tensor], *, create_graph: bool = False, retain_graph: bool | None = None
) -> Tensor:
    gradients = torch.autograd.grad(scalar, list(parameters), create_graph=create_graph, retain_graph=retain_graph)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def conjugate_gradient(product: VectorProduct, target: Tensor, *, iterations: int, tolerance: float = 1e-10) -> Tensor:
    """x with A x ≈ target, for a positive definite A given by its products; exact after n iterations on n unknowns.

    It stops early once the squared residual is that small a part of the target's square.
    """
    solution = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    squared = residual @ residual
    enough = tolerance * squared
    for _ in range(iterations):
        if squared <= enough:
            break
        image = product(direction)
        length = squared / (direction @ image)
        solution = solution + length * direction
        residual = residual - length * image
        squared, previous = residual @ residual, squared
        direction = residual + (squared / previous) * direction
    return solution


def trust_region_step(direction: Tensor, product: VectorProduct, *, max_kl: float) -> Tensor:
    """The multiple of the direction with ½ sᵀ A s = max_kl; zero where the direction has no curvature to bound it."""
    curvature = direction @ product(direction)
    if curvature <= 0:
        return torch.zeros_like(direction)
    return (2.0 * max_kl / curvature).sqrt() * direction


class LineSearch(NamedTuple):
    """The point that was accepted, or the start; `gain` and `kl` are 0 for a search that failed."""

    point: Tensor
    accepted: bool
    gain: float
    kl: float
    tried: int


def backtracking_line_search(
    evaluate: Callable[[Tensor], tuple[float, float]],
    start: Tensor,
    step: Tensor,
    *,
    objective: float,
    max_kl: float,
    shrink: float = 0.8,
    attempts: int = 10,
) -> LineSearch:
    """The longest of step, shrink·step, shrink²·step … that raises the objective and keeps the KL within its bound.

    `evaluate(point)` returns (objective, KL from the start); `objective` is its value at the start.
    """
    for tried in range(1, attempts + 1):
        point = start + shrink ** (tried - 1) * step
        reached, kl = evaluate(point)
        # Comparisons with NaN are false: a step into nowhere is rejected.
        if reached > objective and kl <= max_kl:
            return LineSearch(point, True, reached - objective, kl, tried)
    return LineSearch(start, False, 0.0, 0.0, attempts)
