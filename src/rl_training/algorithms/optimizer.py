"""One optimizer step: gradients to zero, backward, clip by global norm, step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

OPTIMIZERS: dict[str, Any] = {
    "adam": lambda params, lr, eps: torch.optim.Adam(params, lr=lr, eps=eps, fused=True),
    "rmsprop": lambda params, lr, eps: torch.optim.RMSprop(params, lr=lr, eps=eps, alpha=0.99),
}


class FlatOptimizer:
    """All parameters of some modules as one flat tensor, so that clipping and stepping are one kernel each.

    The parameters become views of the flat tensor and keep working as before. Moving the module to another device
    would break the views: build the optimizer after the move.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, learning_rate: float, eps: float, kind: str = "adam"):
        self._parameters = list(dict.fromkeys(parameters))
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self._parameters]))
        self.grad = torch.zeros_like(self.flat)
        self.flat.grad = self.grad
        sizes = [p.numel() for p in self._parameters]
        for p, value, grad in zip(self._parameters, self.flat.data.split(sizes), self.grad.split(sizes), strict=True):
            p.data, p.grad = value.view_as(p), grad.view_as(p)
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
        norm = self.grad.norm()
        if max_grad_norm is not None:
            self.grad.mul_((max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._optimizer.step()
        return norm

    def is_finite(self) -> bool:
        return bool(torch.isfinite(self.flat.sum()))

    def state_dict(self) -> dict[str, Any]:
        """The moments; the parameters themselves belong to their modules."""
        state = self._optimizer.state_dict()
        return {"moments": state["state"].get(0, {}), "learning_rate": self.learning_rate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = self._optimizer.state_dict()
        saved["state"] = {0: dict(state["moments"])} if state["moments"] else {}
        self._optimizer.load_state_dict(saved)
        self.learning_rate = state["learning_rate"]
