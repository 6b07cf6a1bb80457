"""Small grids: boards, planes of bits and tables of codes, whose cells are seen one by one.

A grid has two or three axes, of which the two longest have 4 to 15 cells, and whole numbers in them. Numbers with more
than two values are codes, for which nearness means nothing: each is embedded, as a one-hot code through a linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.envs.types import ImageLayout
from rl_training.errors import ConfigError
from rl_training.models.images import any_part, image_format, is_image
from rl_training.models.mlp import HIDDEN_GAIN, orthogonal
from rl_training.models.precision import Precision, in_precision

SMALLEST_GRID, LARGEST_GRID = 4, 15
MOST_CODES = 256


def is_grid(space: gym.Space) -> bool:
    shape = space.shape or ()
    if len(shape) not in (2, 3) or num_codes(space) is None:
        return False
    shorter, longer = sorted(shape)[-2:]
    return shorter >= SMALLEST_GRID and longer <= LARGEST_GRID


def has_picture(space: gym.Space) -> bool:
    """Whether any part is an image and no grid."""
    return any_part(space, lambda part: is_image(part) and not is_grid(part))


def num_codes(space: gym.Space) -> int | None:
    """How many values a cell may have; None where they are not whole numbers, or too many."""
    if isinstance(space, spaces.MultiBinary) or (isinstance(space, spaces.Box) and space.dtype == np.bool_):
        return 2
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.integer):
        return None
    values = int(space.high.max()) - int(space.low.min()) + 1
    return values if values <= MOST_CODES else None


def lowest_code(space: gym.Space) -> int:
    return int(space.low.min()) if isinstance(space, spaces.Box) else 0


class GridTorso(nn.Module):
    """Cells as planes or embedded codes, 3 × 3 convolutions that keep every cell, one layer over all of them."""

    def __init__(
        self,
        space: gym.Space,
        *,
        image_layout: ImageLayout,
        precision: Precision = "float32",
        channels: Sequence[int] = (16, 32),
        features: int = 128,
        code_size: int = 8,
    ) -> None:
        super().__init__()
        shape, codes = space.shape or (), num_codes(space)
        if len(shape) not in (2, 3) or codes is None:
            raise ConfigError(f"torso grid_cnn takes grids of bits or whole numbers, not {space}")
        self.format = image_format(space, image_layout)
        self.precision = precision
        planes, height, width = self.format.shape
        self.first = lowest_code(space)
        # A table for each plane, one after the other.
        self.codes = nn.Embedding(planes * codes, code_size) if codes > 2 else None
        self.num_codes = codes
        layers: list[nn.Module] = []
        inputs = planes * code_size if self.codes else planes
        for outputs in channels:
            layers += [orthogonal(nn.Conv2d(inputs, outputs, 3, padding=1), HIDDEN_GAIN), nn.ReLU()]
            inputs = outputs
        self.cnn = nn.Sequential(*layers, nn.Flatten())
        self.project = orthogonal(nn.Linear(inputs * height * width, features), HIDDEN_GAIN)
        self.out_features = features

    def forward(self, obs: Tensor) -> Tensor:
        planes = self.planes(obs)
        with in_precision(self.precision, planes.device.type):
            features = F.relu(self.project(self.cnn(planes)))
        return features.float()

    def planes(self, obs: Tensor) -> Tensor:
        """`[N, C, H, W]`"""
        obs = self.format.channels_first(obs)
        if self.codes is None:
            # Planes that lie one after the other: the last layer would copy those whose channels lie side by side.
            return obs.contiguous().float()
        tables = torch.arange(obs.shape[1], device=obs.device).mul(self.num_codes)[:, None, None]
        embedded = self.codes(obs.long() - self.first + tables)  # [N, C, H, W, E]
        return embedded.movedim(-1, 2).flatten(1, 2)
