"""Kernels of an optimizer's step on one flat tensor: they go around torch's hooks and groups, which cost more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats, suits_kernels
from rl_training.kernels.tools.compiled import compiled


def adam_step(flat: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """torch's own fused kernel, called directly."""
    state["step"] += 1
    torch._fused_adam_(
        [flat],
        [grad],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=0.0,
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )


def rmsprop_step(flat: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One pass over all parameters."""
    state["step"] += 1
    arrays = (flat.numpy(), grad.numpy(), state["square_avg"].numpy())
    _rmsprop(*arrays, np.float32(group["lr"]), np.float32(group["alpha"]), np.float32(group["eps"]))


@compiled
def _rmsprop(flat: Floats, grad: Floats, squares: Floats, lr: np.float32, alpha: np.float32, eps: np.float32) -> None:
    rest = np.float32(1.0) - alpha
    for i in range(len(flat)):
        squares[i] = alpha * squares[i] + rest * grad[i] * grad[i]
        flat[i] -= lr * grad[i] / (np.sqrt(squares[i]) + eps)


STEPS: dict[type, Callable[[Tensor, Tensor, dict[str, Any], dict[str, Any]], None]] = {
    torch.optim.Adam: adam_step,
    torch.optim.RMSprop: rmsprop_step,
}


def flat_adam_or_rmsprop(optimizer: FlatOptimizer) -> bool:
    """Adam or RMSprop of one learner, on the CPU, after the first step, which makes their state."""
    return (
        type(optimizer) is FlatOptimizer
        and optimizer.combine_ is None
        and type(optimizer.optimizer) in STEPS
        and suits_kernels(optimizer.flat)
        and bool(optimizer.optimizer.state)
    )


@replaces(FlatOptimizer.apply_gradient, when=flat_adam_or_rmsprop, tolerance=1e-6)
def apply_gradient(self: FlatOptimizer, *, learning_rate: float, max_grad_norm: float | None) -> Tensor:
    grad = self.grad.numpy()
    norm = np.sqrt(grad @ grad)
    if max_grad_norm is not None and max_grad_norm < norm + 1e-6:
        grad *= np.float32(max_grad_norm / (norm + 1e-6))
    (group,) = self.optimizer.param_groups
    group["lr"] = learning_rate
    STEPS[type(self.optimizer)](self.flat.detach(), self.grad, self.optimizer.state[self.flat], group)
    self.tell_parameters()
    return torch.from_numpy(np.asarray(norm))
