"""Heads for actions in a bounded Box, kept as numbers in [−1, 1]: a squashed Gaussian, and a single point."""

from __future__ import annotations

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.box_scale import BoxScale
from rl_training.models.heads import HALF_LOG_2PI, log_tanh_slope

LOG_STD_LOW, LOG_STD_HIGH = -5.0, 2.0


def bounded_scale(space: gym.Space) -> BoxScale:
    """The scale of a Box with finite bounds; any other space is refused."""
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"this algorithm needs a Box of actions, got {space}; DQN and SAC take Discrete ones")
    scale = BoxScale(space)
    if not scale.is_bounded:
        raise ConfigError(f"actions need finite bounds, got {space}; wrap the environment to give it some")
    return scale


class SquashedGaussian(nn.Module):
    """The tanh of a Gaussian whose mean and deviation both depend on the state (Haarnoja et al., 2018, appendix C)."""

    def __init__(self, in_features: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.linear = nn.Linear(in_features, 2 * size)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(mean, log_std), both `[N, size]`."""
        mean, log_std = self.linear(features).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_LOW, LOG_STD_HIGH)

    def sample(self, features: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Actions with their log-densities in [−1, 1]; gradients flow through both."""
        mean, log_std = self(features)
        noise = torch.empty_like(mean).normal_(generator=generator)
        raw = mean + log_std.exp() * noise
        logprobs = -(0.5 * noise.square() + log_std + HALF_LOG_2PI + log_tanh_slope(raw)).sum(-1)
        return raw.tanh(), logprobs

    def mode(self, features: Tensor) -> Tensor:
        return self(features)[0].tanh()
