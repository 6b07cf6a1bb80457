"""Augmented batches of planners: boards mirrored and turned with their moves, images shifted and brightened."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from torch import Tensor

from rl_training.data.trees import Tree
from rl_training.envs.masks import ACTION_MASK, OBS, seen_space
from rl_training.envs.types import ImageLayout, Spaces
from rl_training.errors import ConfigError
from rl_training.models.grids import is_grid
from rl_training.models.images import image_format, is_image
from rl_training.ops.augmentation import moved_pixels, scaled_brightness, shift_sources, symmetry_sources

OBSERVATIONS = ("obs", "next_obs")
Change = Callable[[Tensor, float, np.random.Generator], Tensor]


class Augmentation(ABC):
    """Changes windows of images in a way that what is learned from them does not depend on."""

    def __init__(self, spaces: Spaces, layout: ImageLayout) -> None:
        space = seen_space(spaces)
        if not is_image(space):
            raise ConfigError(f"augmentation: needs observations that are one image or board, got {space}")
        self.format = image_format(space, layout)
        _, self.height, self.width = self.format.shape

    @abstractmethod
    def __call__(self, batch: Mapping[str, Tree], rng: np.random.Generator) -> dict[str, Tree]: ...

    def changed(self, obs: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
        """Observations whose images were changed, which gets them with their channels first."""
        if isinstance(obs, Mapping):
            return {**obs, OBS: self.changed(obs[OBS], change)}
        return self.format.as_given(change(self.format.channels_first(obs)))


class Views(Augmentation):
    """Changes every observation by chance of its own (Ye et al., 2021; Yarats et al., 2021)."""

    def __init__(self, spaces: Spaces, layout: ImageLayout, changes: tuple[Change, ...]) -> None:
        super().__init__(spaces, layout)
        if brightened in changes and is_grid(seen_space(spaces)):
            raise ConfigError("augmentation: intensity is for pixels, and the cells of a grid are bits or codes")
        self.changes = changes

    def __call__(self, batch: Mapping[str, Tree], rng: np.random.Generator) -> dict[str, Tree]:
        def view(images: Tensor) -> Tensor:
            for change in self.changes:
                images = change(images, self.format.black, rng)
            return images

        return {**batch, **{name: self.changed(batch[name], view) for name in OBSERVATIONS if name in batch}}


def shifted(images: Tensor, black: float, rng: np.random.Generator) -> Tensor:
    """Images moved by a few pixels, of 84 by up to 4."""
    height, width = images.shape[-2:]
    furthest = math.ceil(max(height, width) / 24)
    offsets = rng.integers(-furthest, furthest, size=(images.shape[-4], 2), endpoint=True)
    return moved_pixels(images, torch.from_numpy(shift_sources(height, width, offsets)).to(images.device))


def brightened(images: Tensor, black: float, rng: np.random.Generator) -> Tensor:
    """Images, as floats, that are brighter or darker by up to a tenth."""
    noise = rng.standard_normal(images.shape[:-3], dtype=np.float32)
    return scaled_brightness(images, black, torch.from_numpy(noise).to(images.device))


VIEWS: dict[str, tuple[Change, ...]] = {
    "shift": (shifted,),
    "intensity": (brightened,),
    "shift_intensity": (shifted, brightened),
}


class Symmetries(Augmentation):
    """Mirrors boards, and with `turns` also turns them; the moves of each window go with its board.

    A move is the number of a cell, row by row, or of a column.
    """

    def __init__(self, spaces: Spaces, layout: ImageLayout, *, turns: bool) -> None:
        super().__init__(spaces, layout)
        assert isinstance(spaces.action, gym_spaces.Discrete)
        self.pixels = symmetry_sources(self.height, self.width, turns=turns)
        if spaces.action.n == self.height * self.width and (self.height == self.width or not turns):
            self.moves = self.pixels
        elif spaces.action.n == self.width and not turns:
            self.moves = symmetry_sources(1, self.width, turns=False)
        else:
            board = f"{spaces.action.n} moves on a board of {self.height} × {self.width}"
            raise ConfigError(
                f"augmentation: {board}; mirror is for moves that are cells or columns, square for cells of a square"
            )

    def __call__(self, batch: Mapping[str, Tree], rng: np.random.Generator) -> dict[str, Tree]:
        drawn = rng.integers(len(self.pixels), size=len(batch["weights"]))
        device = batch["weights"].device
        pixels, moves = (torch.from_numpy(sources[drawn]).to(device) for sources in (self.pixels, self.moves))
        boards = {name: self.turned(batch[name], pixels, moves) for name in OBSERVATIONS if name in batch}
        actions = moves.argsort(-1).gather(-1, batch["actions"].T).T
        policies = batch["policies"].gather(-1, moves.expand(batch["policies"].shape))
        return {**batch, **boards, "actions": actions, "policies": policies}

    def turned(self, obs: Tree, pixels: Tensor, moves: Tensor) -> Tree:
        turned = self.changed(obs, lambda images: moved_pixels(images, pixels))
        if isinstance(obs, Mapping) and ACTION_MASK in obs:
            turned[ACTION_MASK] = obs[ACTION_MASK].gather(-1, moves.expand(obs[ACTION_MASK].shape))
        return turned


def make_augmentation(kind: str, spaces: Spaces, layout: ImageLayout) -> Augmentation | None:
    if kind == "none":
        return None
    if kind in VIEWS:
        return Views(spaces, layout, VIEWS[kind])
    return Symmetries(spaces, layout, turns=kind == "square")
