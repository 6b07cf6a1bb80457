"""Dreamer's encoder and decoder. Numbers go through symlog and an MLP, images through a CNN; a Dict has both.

`targets` is what the decoder reconstructs: numbers squashed by symlog, classes one-hot, images in [0, 1] at the
resolution of the CNN. All take and give rows `[N, …]`.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import ImageLayout
from rl_training.errors import ConfigError
from rl_training.models.images import image_format, is_image
from rl_training.models.normed import ChannelActivation, NormedMLP, linear
from rl_training.ops.transforms import symlog

MIN_RESOLUTION = 4
LARGEST = 1e30  # numbers beyond it, such as the bounds of an unbounded space, are as good as it


class Seen(NamedTuple):
    """An observation as networks take it: all numbers side by side, and each image `[N, C, H, W]` in [0, 1]."""

    vector: Tensor
    images: tuple[Tensor, ...]


class CodecSize(NamedTuple):
    units: int
    layers: int
    depth: int  # channels of the first convolution


class ObsReader(nn.Module):
    """Raw observations → `Seen`."""

    def __init__(self, space: gym.Space, image_layout: ImageLayout) -> None:
        super().__init__()
        leaves = space_leaves(space)
        self.numbers = tuple((path, leaf) for path, leaf in leaves if not is_image(leaf))
        self.images = tuple((path, image_format(leaf, image_layout)) for path, leaf in leaves if is_image(leaf))
        self.vector_size = sum(_width(leaf) for _, leaf in self.numbers)
        self.image_shapes = tuple(_reduced(image.shape) for _, image in self.images)

    def columns(self, path: tuple[str, ...]) -> slice:
        """Where the numbers of a part of the observation stand in the vector."""
        before = itertools.takewhile(lambda part: part[0] != path, self.numbers)
        first = sum(_width(leaf) for _, leaf in before)
        return slice(first, first + _width(dict(self.numbers)[path]))

    def forward(self, obs: Tree) -> Seen:
        numbers = [_numbers(pick(obs, path), leaf) for path, leaf in self.numbers]
        images = [
            _resized(image.pixels(pick(obs, path)), shape)
            for (path, image), shape in zip(self.images, self.image_shapes, strict=True)
        ]
        vector = torch.cat(numbers, dim=-1) if numbers else images[0].new_zeros(images[0].shape[0], 0)
        return Seen(vector, tuple(images))


class ObsEncoder(nn.Module):
    """`Seen` → tokens `[N, out_features]`."""

    def __init__(self, reader: ObsReader, size: CodecSize) -> None:
        super().__init__()
        self.mlp = NormedMLP(reader.vector_size, size.units, size.layers) if reader.vector_size else None
        self.cnns = nn.ModuleList(image_encoder(shape, size.depth) for shape in reader.image_shapes)
        flat = sum(_features(shape, size.depth) for shape in reader.image_shapes)
        self.out_features = flat + (size.units if self.mlp else 0)

    def forward(self, seen: Seen) -> Tensor:
        parts = [] if self.mlp is None else [self.mlp(seen.vector)]
        parts += [cnn(image - 0.5) for cnn, image in zip(self.cnns, seen.images, strict=True)]
        return torch.cat(parts, dim=-1)


class ObsDecoder(nn.Module):
    """Features of a latent state → the `Seen` that it expects."""

    def __init__(self, reader: ObsReader, in_features: int, size: CodecSize) -> None:
        super().__init__()
        width = reader.vector_size
        self.mlp = NormedMLP(in_features, size.units, size.layers, width) if width else None
        self.cnns = nn.ModuleList(image_decoder(in_features, shape, size.depth) for shape in reader.image_shapes)

    def forward(self, features: Tensor) -> Seen:
        vector = features.new_zeros(len(features), 0) if self.mlp is None else self.mlp(features)
        return Seen(vector, tuple(cnn(features) for cnn in self.cnns))


def image_encoder(shape: tuple[int, int, int], depth: int) -> nn.Sequential:
    """Convolutions of stride 2 down to 4 × 4, the channels doubled by each."""
    layers: list[nn.Module] = []
    channels = shape[0]
    for width in _widths(shape, depth):
        layers += [nn.Conv2d(channels, width, 4, stride=2, padding=1), ChannelActivation(width)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten())


def image_decoder(in_features: int, shape: tuple[int, int, int], depth: int) -> nn.Sequential:
    """The encoder's mirror image; a sigmoid keeps the pixels in [0, 1]."""
    *widths, deepest = _widths(shape, depth)
    smallest = (deepest, shape[1] >> len(widths) + 1, shape[2] >> len(widths) + 1)
    layers: list[nn.Module] = [linear(in_features, int(np.prod(smallest))), nn.Unflatten(-1, smallest)]
    channels = deepest
    for width in reversed(widths):
        layers += [ChannelActivation(channels), nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1)]
        channels = width
    last = nn.ConvTranspose2d(channels, shape[0], 4, stride=2, padding=1)
    return nn.Sequential(*layers, ChannelActivation(channels), last, nn.Sigmoid())


def space_leaves(space: gym.Space, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], gym.Space]]:
    """(path, space) of everything that is no Dict."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, sub in space.items() for leaf in space_leaves(sub, (*path, key))]
    return [(path, space)]


def pick(obs: Tree, path: tuple[str, ...]) -> Tensor:
    for key in path:
        obs = obs[key]
    return obs


def _width(space: gym.Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return int(np.prod(space.shape or ()))
    raise ConfigError(f"observation space {space} is not supported by Dreamer; use Box, Discrete, MultiBinary or Dict")


def _numbers(obs: Tensor, space: gym.Space) -> Tensor:
    if isinstance(space, spaces.Discrete):
        return F.one_hot(obs.long() - int(space.start), int(space.n)).float()
    return symlog(obs.reshape(obs.shape[0], -1).float().clamp(-LARGEST, LARGEST))


def _resized(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    return pixels if pixels.shape[-3:] == shape else F.interpolate(pixels, shape[1:], mode="area")


def _reduced(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The sides rounded down to the next 4 · 2ⁿ that the CNN can halve: 84 becomes 64."""
    channels, height, width = shape
    stages = max(1, int(np.log2(min(height, width) / MIN_RESOLUTION)))
    multiple = MIN_RESOLUTION << stages if min(height, width) >= 2 * MIN_RESOLUTION else 2
    return channels, height // multiple * multiple, width // multiple * multiple


def _widths(shape: tuple[int, int, int], depth: int) -> list[int]:
    stages = max(1, int(np.log2(min(shape[1:]) / MIN_RESOLUTION)))
    return [depth << stage for stage in range(stages)]


def _features(shape: tuple[int, int, int], depth: int) -> int:
    widths = _widths(shape, depth)
    return widths[-1] * (shape[1] >> len(widths)) * (shape[2] >> len(widths))
