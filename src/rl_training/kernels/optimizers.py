"""Kernels of an optimizer's step on one flat tensor: they go around torch's hooks and groups, which cost more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import suits_kernels


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
    """Steps in NumPy, which is quicker to launch."""
    state["step"] += 1
    slope, squares = grad.numpy(), state["square_avg"].numpy()
    squares *= group["alpha"]
    squares += (1.0 - group["alpha"]) * slope * slope
    step = np.sqrt(squares)
    step += group["eps"]
    np.divide(slope, step, out=step)
    step *= group["lr"]
    flat.numpy()[...] -= step


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
