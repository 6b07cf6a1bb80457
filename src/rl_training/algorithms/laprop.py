"""LaProp and adaptive clipping, which Dreamer's optimizer is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

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
