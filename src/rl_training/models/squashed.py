"""Heads for actions in a bounded Box, kept as numbers in [−1, 1]: a squashed Gaussian, and a single point."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.heads import AS_GOOD_AS_INFINITE, HALF_LOG_2PI, log_tanh_slope

LOG_STD_LOW, LOG_STD_HIGH = -5.0, 2.0


class BoxScale:
    """The way between [−1, 1] and the bounds of a Box."""

    def __init__(self, space: gym.Space) -> None:
        if not isinstance(space, spaces.Box):
            raise ConfigError(f"this algorithm needs a Box of actions, got {space}; DQN and SAC take Discrete ones")
        low, high = space.low, space.high
        if not ((low > -AS_GOOD_AS_INFINITE) & (high < AS_GOOD_AS_INFINITE)).all():
            raise ConfigError(f"actions need finite bounds, got {space}; wrap the environment to give it some")
        self.shape = space.shape
        self.size = int(np.prod(space.shape))
        self.dtype = space.dtype
        self._low, self._half = low, 0.5 * (high - low)
        self._high = high

    def to_env(self, actions: NDArray[np.floating]) -> NDArray[np.generic]:
        scaled = self._low + (actions.reshape(-1, *self.shape) + 1.0) * self._half
        if np.issubdtype(self.dtype, np.integer):
            scaled = np.rint(scaled)
        return scaled.clip(self._low, self._high).astype(self.dtype, copy=False)


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
