"""Dreamer's optimizer: LaProp on gradients that are clipped tensor by tensor, in proportion to the weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.optimizer import FlatOptimizer

SMALLEST_NORM = 1e-3  # weights that begin at zero may move nevertheless


class LaProp(torch.optim.Optimizer):
    """Momentum of normalised gradients, where Adam normalises the momentum (Ziyin et al., 2020)."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, eps: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                self._step_one(p, self.state[p], group)

    def _step_one(self, p: nn.Parameter, state: dict[str, Any], group: dict[str, Any]) -> None:
        momentum_decay, square_decay = group["betas"]
        grad: Tensor = p.grad  # type: ignore[assignment]
        if not state:
            state.update(step=torch.zeros(()), square=torch.zeros_like(p), momentum=torch.zeros_like(p))
        state["step"] += 1
        count = float(state["step"])
        state["square"].mul_(square_decay).addcmul_(grad, grad, value=1.0 - square_decay)
        scale = (state["square"] / (1.0 - square_decay**count)).sqrt_().add_(group["eps"])
        state["momentum"].mul_(momentum_decay).addcdiv_(grad, scale, value=1.0 - momentum_decay)
        p.add_(state["momentum"], alpha=-group["lr"] / (1.0 - momentum_decay**count))


def clip_adaptively_(parameters: list[Tensor], grads: list[Tensor], clip: float) -> None:
    """Bounds each gradient's norm by `clip` times its tensor's (Brock et al., 2021, but for whole tensors)."""
    bounds = torch.stack(torch._foreach_norm(parameters)).clamp_(min=SMALLEST_NORM).mul_(clip)
    norms = torch.stack(torch._foreach_norm(grads))
    torch._foreach_mul_(grads, list((bounds / norms.clamp(min=1e-12)).clamp_(max=1.0).unbind()))


class AdaptivelyClippedOptimizer(FlatOptimizer):
    """`max_grad_norm` of its `step` is the share of its weights' norm that each tensor's gradient may have."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, learning_rate: float, eps: float, kind: str) -> None:
        unique = list(dict.fromkeys(parameters))
        super().__init__(unique, learning_rate=learning_rate, eps=eps)
        if kind == "laprop":
            self._optimizer = LaProp([self.flat], learning_rate, eps)
        self._weights = [p.data for p in unique]
        self._grads: list[Tensor] = [p.grad for p in unique]  # type: ignore[misc]

    def step(self, loss: Tensor, *, max_grad_norm: float | None) -> Tensor:
        self.grad.zero_()
        loss.backward()
        norm = self.grad.norm()
        if max_grad_norm is not None:
            clip_adaptively_(self._weights, self._grads, max_grad_norm)
        self._optimizer.step()
        return norm
