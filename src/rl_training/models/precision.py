"""The numbers that networks compute in: float32, or bfloat16 where it is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["float32", "bfloat16", "auto"]


def in_precision(precision: Precision, device_type: str) -> AbstractContextManager[object]:
    """Within this, products and convolutions are in the precision; weights, sums and what follows stay float32."""
    return torch.autocast(device_type, torch.bfloat16, enabled=is_bfloat16(precision, device_type))


def product(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
    """x · weight in the precision, and its gradients too; what comes in and goes out is float32."""
    if is_bfloat16(precision, x.device.type):
        return (x.bfloat16() @ weight.bfloat16()).float()
    return x @ weight


def is_bfloat16(precision: Precision, device_type: str) -> bool:
    return precision == "bfloat16" or (precision == "auto" and has_bfloat16(device_type))


@cache
def has_bfloat16(device_type: str) -> bool:
    """Whether the processor multiplies in bfloat16; where it only pretends to, float32 is quicker."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return device_type == "cpu" and any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))
