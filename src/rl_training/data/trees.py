"""Observations are a tensor or a (nested) mapping of tensors; these helpers treat both alike."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

Tree = Any
ALIGNMENT = 64  # bytes, of the memory that torch allocates


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Applies the function leaf by leaf; mappings stay mappings."""
    if isinstance(tree, Mapping):
        return {key: tree_map(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    return function(tree, *others)


def tree_leaves(tree: Tree) -> list[Any]:
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    return [tree]


def row_forms(tree: Tree, row_axes: int) -> Tree:
    """The dtype and the shape of a row of each leaf, behind the axes that count rows."""
    return tree_map(lambda leaf: (str(leaf.dtype), tuple(leaf.shape[row_axes:])), tree)


def flatten_time(tree: Tree) -> Tree:
    """[T, B, …] → [T·B, …] for every leaf."""
    return tree_map(lambda leaf: leaf.flatten(0, 1), tree)


def to_tensors(tree: Tree, device: torch.device | str = "cpu") -> Tree:
    """NumPy leaves as tensors: on the CPU they share the memory of leaves that are aligned, others are copied."""
    return tree_map(lambda leaf: _aligned(torch.from_numpy(np.ascontiguousarray(leaf))).to(device), tree)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy in memory that begins as torch's own does.

    The last bits of torch's products depend on where their operands begin, and NumPy's arrays begin anywhere: without
    this, runs of one seed would differ.
    """
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def batch_of_one(obs: Tree) -> Tree:
    """One observation as a batch, which is how policies take it."""
    return tree_map(lambda leaf: np.asarray(leaf)[None], obs)


def to_observations(tree: Tree, device: torch.device | str = "cpu") -> Tree:
    """Observations as networks take them: double precision, which none of them computes in, becomes single."""
    return to_tensors(tree_map(lambda leaf: np.asarray(leaf, as_taken(leaf.dtype)), tree), device)


def as_taken(dtype: np.dtype | type[np.generic] | None) -> np.dtype:
    """The type in which networks take observations of this type."""
    return np.dtype(np.float32 if dtype == np.float64 else dtype)


def space_map(function: Callable[[gym.Space], Any], space: gym.Space) -> Tree:
    """The tree of an observation space: Dict spaces become mappings, all others are leaves."""
    if isinstance(space, gym.spaces.Dict):
        return {key: space_map(function, sub) for key, sub in space.items()}
    return function(space)


def zeros_for(space: gym.Space, shape: tuple[int, ...]) -> Tree:
    """Zeroed NumPy buffers that hold `shape` samples of the space."""
    return space_map(lambda leaf: np.zeros(shape + (leaf.shape or ()), dtype=leaf.dtype), space)


def observation_buffers(space: gym.Space, shape: tuple[int, ...]) -> Tree:
    """Zeroed NumPy buffers for `shape` observations of the space, as networks take them and aligned as they need."""
    return space_map(lambda leaf: aligned_zeros(shape + (leaf.shape or ()), as_taken(leaf.dtype)), space)


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A NumPy array in torch's memory, so that `to_tensors` shares it."""
    return (
        torch.zeros(math.prod(shape) * dtype.itemsize, dtype=torch.uint8, device="cpu")
        .numpy()
        .view(dtype)
        .reshape(shape)
    )
