"""One optimizer step: gradients to zero, backward, clip, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from rl_training.algorithms.laprop import LaProp, clip_adaptively_
from rl_training.replaceable import replaceable

# A step says its learning rate, so that none is given here.
OPTIMIZERS: dict[str, Any] = {
    "adam": lambda flat, eps: torch.optim.Adam([flat], lr=0.0, eps=eps, fused=True),
    "rmsprop": lambda flat, eps: torch.optim.RMSprop([flat], lr=0.0, eps=eps, alpha=0.99),
    "laprop": lambda flat, eps: LaProp([flat], lr=0.0, eps=eps),
}


class FlatOptimizer:
    """All parameters of some modules as one flat tensor, so that clipping and stepping are one operation each.

    The parameters become views of the flat tensor and keep working as before. Moving the module to another device
    would break the views: build the optimizer after the move. A second one over the same parameters would take them
    away from the first: give it the first instead, and it steps the same flat tensor with moments of its own.
    """

    def __init__(self, parameters: Iterable[nn.Parameter] | FlatOptimizer, *, eps: float, kind: str) -> None:
        self.parameters: list[nn.Parameter]
        self.flat: nn.Parameter
        if isinstance(parameters, FlatOptimizer):
            self.parameters, self.flat = parameters.parameters, parameters.flat
        else:
            self.parameters = list(dict.fromkeys(parameters))
            self.flat = _flattened(self.parameters)
        self.grad: Tensor = self.flat.grad  # type: ignore[assignment]
        self.combine_: Callable[[Tensor], Tensor] | None = None  # makes one mean of several learners', in place
        self.optimizer: torch.optim.Optimizer = OPTIMIZERS[kind](self.flat, eps)

    def step(self, loss: Tensor, *, learning_rate: float, max_grad_norm: float | None) -> Tensor:
        """Descends along the gradient of the loss; returns its norm before clipping."""
        self.grad.zero_()
        loss.backward()
        return self.apply_gradient(learning_rate=learning_rate, max_grad_norm=max_grad_norm)

    @replaceable
    def apply_gradient(self, *, learning_rate: float, max_grad_norm: float | None) -> Tensor:
        """Descends along the gradient that is in `grad` already; returns its norm before clipping."""
        if self.combine_ is not None:
            self.combine_(self.grad)
        norm = self.grad.norm()
        if max_grad_norm is not None:
            self.clip_(norm, max_grad_norm)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()
        self.tell_parameters()
        return norm

    def clip_(self, norm: Tensor, max_grad_norm: float) -> None:
        self.grad.mul_((max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))

    def tell_parameters(self) -> None:
        """The flat tensor has changed, and they with it: autograd, and copies of them, learn it by their version."""
        increment_version(self.parameters)

    def is_finite(self) -> bool:
        """A finite sum proves that every number is finite; an infinite one may be overflow, which is as bad."""
        return math.isfinite(float(self.flat.detach().sum()))

    def state_dict(self) -> dict[str, Any]:
        """The moments; the parameters themselves belong to their modules."""
        return {"moments": self.optimizer.state_dict()["state"].get(0, {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, moment in state["moments"].items():
            if moment.shape not in ((), self.flat.shape):
                raise ValueError(f"{name} has shape {tuple(moment.shape)}, the parameters {tuple(self.flat.shape)}")
        saved = self.optimizer.state_dict()
        moments = {name: moment.clone() for name, moment in state["moments"].items()}
        self.optimizer.load_state_dict(saved | {"state": {0: moments} if moments else {}})


class AdaptivelyClippedOptimizer(FlatOptimizer):
    """`max_grad_norm` of its `step` is the share of its weights' norm that each tensor's gradient may have."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, eps: float, kind: str) -> None:
        super().__init__(parameters, eps=eps, kind=kind)
        self._weights = [p.data for p in self.parameters]
        self._grads: list[Tensor] = [p.grad for p in self.parameters]  # type: ignore[misc]

    def clip_(self, norm: Tensor, max_grad_norm: float) -> None:
        clip_adaptively_(self._weights, self._grads, max_grad_norm)


def _flattened(parameters: list[nn.Parameter]) -> nn.Parameter:
    """One parameter, of whose values and gradients all others' become views, each laid out in memory as it was."""
    flat = nn.Parameter(torch.cat([p.detach().as_strided((p.numel(),), (1,)) for p in parameters]))
    flat.grad = torch.zeros_like(flat)
    sizes = [p.numel() for p in parameters]
    for p, value, grad in zip(parameters, flat.data.split(sizes), flat.grad.split(sizes), strict=True):
        p.data, p.grad = (part.as_strided(p.shape, p.stride(), part.storage_offset()) for part in (value, grad))
    return flat
