"""Augmented images. `sources` name, for each pixel of the new image, the pixel of the old one that it shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]
INTENSITY, FURTHEST = 0.05, 2.0  # of EfficientZero: a deviation of brightness, and how many of them at most


def symmetry_sources(height: int, width: int, *, turns: bool) -> Indices:
    """`[S, H · W]`: a board as it is and mirrored, and with `turns` each of the two turned by quarters."""
    board = np.arange(height * width).reshape(height, width)
    quarters = range(4 if turns else 1)
    return np.stack([np.rot90(one, quarter).reshape(-1) for one in (board, board[:, ::-1]) for quarter in quarters])


def shift_sources(height: int, width: int, offsets: Indices) -> Indices:
    """`[B, H · W]`: images shifted by `offsets` `[B, 2]`, up and to the left; their edges are repeated."""
    rows = np.clip(np.arange(height) + offsets[:, :1], 0, height - 1)
    columns = np.clip(np.arange(width) + offsets[:, 1:], 0, width - 1)
    return (rows[:, :, None] * width + columns[:, None, :]).reshape(len(offsets), height * width)


def moved_pixels(images: Tensor, sources: Tensor) -> Tensor:
    """Images `[…, B, C, H, W]` with the pixels that `sources` `[B, H · W]` name."""
    rows = images.flatten(-2)
    return rows.gather(-1, sources[:, None].expand(rows.shape)).reshape(images.shape)


def scaled_brightness(images: Tensor, black: float, noise: Tensor) -> Tensor:
    """Images `[…, C, H, W]` as floats whose distance from black is scaled by 1 + 0.05 ε, of `noise` `[…]`."""
    factors = 1.0 + INTENSITY * noise.clamp(-FURTHEST, FURTHEST)
    return black + (images.float() - black) * factors[..., None, None, None]
