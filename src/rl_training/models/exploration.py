"""The noise that actors of Box actions explore with, white or correlated in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ExplorationNoise:
    """Standard normal numbers `[B, size]`, of which each keeps `correlation` of the one before it in its episode.

    e_t = ρ e_{t−1} + √(1 − ρ²) ξ_t is standard normal if e_{t−1} is, so that actions are distributed as with white
    noise. The policy's state carries e_{t−1}, and a last column that tells whether the episode has drawn any.
    """

    size: int
    correlation: float

    @property
    def state_size(self) -> int:
        return self.size + 1 if self.correlation else 0

    def draw(self, state: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """(numbers, state after them)."""
        fresh = torch.empty(state.shape[0], self.size, device=state.device).normal_(generator=generator)
        if not self.correlation:
            return fresh, state
        before, has_drawn = state.split([self.size, 1], dim=-1)
        kept = self.correlation * has_drawn
        noise = kept * before + (1.0 - kept.square()).sqrt() * fresh
        return noise, torch.cat([noise, torch.ones_like(has_drawn)], dim=-1)


def as_uniform(noise: Tensor) -> Tensor:
    """Standard normal numbers → uniform ones in (−1, 1), by the normal distribution function."""
    return torch.erf(noise / math.sqrt(2.0))
