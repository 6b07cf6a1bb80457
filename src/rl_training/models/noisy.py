"""Noisy linear layers (Fortunato et al., 2018): exploration by weights that are learned to vary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INITIAL_SIGMA = 0.5


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise on its weights; without noise until some is drawn."""

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = in_features**-0.5
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), INITIAL_SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), INITIAL_SIGMA * bound))
        self.register_buffer("noise_in", torch.zeros(in_features), persistent=False)
        self.register_buffer("noise_out", torch.zeros(out_features), persistent=False)

    def draw_noise(self, generator: torch.Generator | None) -> None:
        for noise in (self.noise_in, self.noise_out):
            normal = torch.empty_like(noise).normal_(generator=generator)
            noise.copy_(normal.sign() * normal.abs().sqrt())

    def quiet(self) -> None:
        self.noise_in.zero_()
        self.noise_out.zero_()

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return F.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)
