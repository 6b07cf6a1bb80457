"""One optimizer step: gradients to zero, backward, clip by global norm, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class FlatAdam(torch.optim.Adam):
    """Adam for one tensor. `step` with its hooks and groups costs a small network five times what the kernel does."""

    def step_flat(self) -> None:
        (group,) = self.param_groups
        (flat,) = group["params"]
        state = self.state[flat]
        if not (state and flat.is_cpu):  # the first step makes the state
            self.step()
            return
        with torch.no_grad():
            state["step"] += 1
            torch._fused_adam_(
                [flat],
                [flat.grad],
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


class FlatRMSprop(torch.optim.RMSprop):
    """RMSprop for one tensor, as `FlatAdam`; on the CPU in NumPy, which is quicker to launch."""

    def step_flat(self) -> None:
        (group,) = self.param_groups
        (flat,) = group["params"]
        state = self.state[flat]
        if not (state and flat.is_cpu):
            self.step()
            return
        state["step"] += 1
        grad, squares = flat.grad.numpy(), state["square_avg"].numpy()
        squares *= group["alpha"]
        squares += (1.0 - group["alpha"]) * grad * grad
        step = np.sqrt(squares)
        step += group["eps"]
        np.divide(grad, step, out=step)
        step *= group["lr"]
        flat.detach().numpy()[...] -= step


OPTIMIZERS: dict[str, Any] = {
    "adam": lambda params, lr, eps: FlatAdam(params, lr=lr, eps=eps, fused=True),
    "rmsprop": lambda params, lr, eps: FlatRMSprop(params, lr=lr, eps=eps, alpha=0.99),
}


class FlatOptimizer:
    """All parameters of some modules as one flat tensor, so that clipping and stepping are one kernel each.

    The parameters become views of the flat tensor and keep working as before. Moving the module to another device
    would break the views: build the optimizer after the move. A second one over the same parameters would take them
    away from the first: give it the first instead, and it steps the same flat tensor with moments of its own.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | FlatOptimizer,
        *,
        learning_rate: float,
        eps: float,
        kind: str = "adam",
    ) -> None:
        self.flat: nn.Parameter = parameters.flat if isinstance(parameters, FlatOptimizer) else _flattened(parameters)
        self.grad: Tensor = self.flat.grad  # type: ignore[assignment]
        self.combine: Callable[[Tensor], None] | None = None  # makes one mean of several learners', in place
        self._optimizer = OPTIMIZERS[kind]([self.flat], learning_rate, eps)

    @property
    def learning_rate(self) -> float:
        return self._optimizer.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._optimizer.param_groups[0]["lr"] = value

    def step(self, loss: Tensor, *, max_grad_norm: float | None) -> Tensor:
        """Returns the gradient's norm before clipping."""
        self.grad.zero_()
        loss.backward()
        return self.apply_gradient(max_grad_norm=max_grad_norm)

    def apply_gradient(self, *, max_grad_norm: float | None) -> Tensor:
        """A step along the gradient that is in `grad` already; returns its norm before clipping."""
        if self.combine is not None:
            self.combine(self.grad)
        norm = self._clip(max_grad_norm)
        self._optimizer.step_flat()
        return norm

    def _clip(self, max_norm: float | None) -> Tensor:
        if not self.grad.is_cpu:
            norm = self.grad.norm()
            if max_norm is not None:
                self.grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
            return norm
        grad = self.grad.numpy()
        length = np.sqrt(grad @ grad)
        if max_norm is not None and max_norm < length + 1e-6:
            grad *= np.float32(max_norm / (length + 1e-6))
        return torch.from_numpy(np.asarray(length))

    def is_finite(self) -> bool:
        return math.isfinite(float(self.flat.detach().sum()))

    def state_dict(self) -> dict[str, Any]:
        """The moments; the parameters themselves belong to their modules."""
        state = self._optimizer.state_dict()
        return {"moments": state["state"].get(0, {}), "learning_rate": self.learning_rate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = self._optimizer.state_dict()
        saved["state"] = (
            {0: {name: moment.clone() for name, moment in state["moments"].items()}} if state["moments"] else {}
        )
        self._optimizer.load_state_dict(saved)
        self.learning_rate = state["learning_rate"]


def _flattened(parameters: Iterable[nn.Parameter]) -> nn.Parameter:
    """One parameter, of whose values and gradients all others' become views, each laid out in memory as it was."""
    unique = list(dict.fromkeys(parameters))
    flat = nn.Parameter(torch.cat([p.detach().as_strided((p.numel(),), (1,)) for p in unique]))
    flat.grad = torch.zeros_like(flat)
    sizes = [p.numel() for p in unique]
    for p, value, grad in zip(unique, flat.data.split(sizes), flat.grad.split(sizes), strict=True):
        p.data, p.grad = (part.as_strided(p.shape, p.stride(), part.storage_offset()) for part in (value, grad))
    return flat
