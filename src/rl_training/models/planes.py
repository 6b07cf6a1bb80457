"""Latent planes: states that keep the layout of an image or a board, in residual towers (Schrittwieser et al., 2020).

Searches and updates see latents as rows `[B, H · W · C]`; the modules here fold them into planes and out again. The
channels of a cell lie side by side: convolutions of few channels take half the time so.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.envs.types import ImageLayout
from rl_training.models.images import image_format
from rl_training.models.torsos import ResidualBlock, Torso

LARGEST_SIDE = 8  # of a plane: larger images are halved until they fit
HEAD_CHANNELS = 4  # that a tower's planes are reduced to before a head reads them


@dataclass(frozen=True)
class PlaneShape:
    channels: int
    height: int
    width: int

    @property
    def size(self) -> int:
        return self.channels * self.height * self.width

    def cells(self, rows: Tensor) -> Tensor:
        """Rows `[B, H · W · C]` as `[B, H, W, C]`."""
        return rows.unflatten(-1, (self.height, self.width, self.channels))

    def folded(self, rows: Tensor) -> Tensor:
        """Rows as planes `[B, C, H, W]`."""
        return self.cells(rows).movedim(-1, 1)


def as_rows(planes: Tensor) -> Tensor:
    """Planes `[B, C, H, W]` as rows."""
    return planes.movedim(1, -1).flatten(1)


def tower(channels: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks)))


class PlanesTorso(Torso):
    """Images → latent planes, as rows: halved by strides until no side is over 8, then residual blocks."""

    def __init__(self, space: gym.Space, layout: ImageLayout, *, channels: int, blocks: int) -> None:
        super().__init__()
        self.format = image_format(space, layout)
        found, height, width = self.format.shape
        layers: list[nn.Module] = []
        while max(height, width) > LARGEST_SIDE:
            layers += [nn.Conv2d(found, channels, 3, stride=2, padding=1), nn.ReLU()]
            found, height, width = channels, (height + 1) // 2, (width + 1) // 2
        if not layers:
            layers = [nn.Conv2d(found, channels, 3, padding=1)]
        self.layers = nn.Sequential(*layers, tower(channels, blocks))
        self.shape = PlaneShape(channels, height, width)
        self.out_features = self.shape.size

    def forward(self, obs: Tensor) -> Tensor:
        return as_rows(self.layers(self.format.pixels(obs)))


class PlanesStep(nn.Module):
    """Latents and encoded actions side by side → the planes that a step's reward and successor are read from.

    Each number of an action enters as a plane filled with it: a one-hot one as a plane of ones among planes of zeros.
    Moves `on_board`, which are cells or columns of it, enter as one plane that is 1 where they are: from a filled one
    no convolution could tell.
    """

    def __init__(self, shape: PlaneShape, num_actions: int, blocks: int, *, on_board: bool = False) -> None:
        super().__init__()
        self.shape, self.num_actions = shape, num_actions
        self.is_placed = on_board and num_actions in (shape.width, shape.height * shape.width)
        planes = 1 if self.is_placed else num_actions
        self.enter = nn.Conv2d(shape.channels + planes, shape.channels, 3, padding=1)
        self.tower = tower(shape.channels, blocks)
        self.out_features = shape.size

    def forward(self, inputs: Tensor) -> Tensor:
        rows, actions = inputs.split([self.shape.size, self.num_actions], dim=-1)
        entering = torch.cat([self.shape.cells(rows), self.planes(actions)], dim=-1).movedim(-1, 1)
        return as_rows(F.relu(self.tower(self.shape.folded(rows) + self.enter(entering))))

    def planes(self, actions: Tensor) -> Tensor:
        """Actions `[B, A]` as planes, channels last."""
        height, width = self.shape.height, self.shape.width
        if self.is_placed:
            return actions.reshape(len(actions), -1, width, 1).expand(-1, height, -1, -1)
        return actions[:, None, None].expand(-1, height, width, -1)


class PlanesLayers(nn.Module):
    """Convolutional layers from planes to planes, both as rows."""

    def __init__(self, shape: PlaneShape, layers: nn.Module) -> None:
        super().__init__()
        self.shape, self.layers, self.out_features = shape, layers, shape.size

    def forward(self, rows: Tensor) -> Tensor:
        return as_rows(self.layers(self.shape.folded(rows)))


class PlanesHead(nn.Module):
    """Planes, as rows → a few channels → a hidden layer → numbers."""

    def __init__(self, shape: PlaneShape, hidden: int, last: nn.Module) -> None:
        super().__init__()
        self.shape = shape
        self.reduce = nn.Conv2d(shape.channels, HEAD_CHANNELS, 1)
        self.hidden = nn.Linear(HEAD_CHANNELS * shape.height * shape.width, hidden)
        self.last = last

    def forward(self, rows: Tensor) -> Tensor:
        # A convolution of single cells is a product, which takes less time than a convolution of so few channels.
        reduced = F.linear(self.shape.cells(rows), self.reduce.weight.flatten(1), self.reduce.bias)
        return self.last(F.relu(self.hidden(F.relu(reduced).flatten(1))))
