"""The networks of random network distillation (Burda et al., 2019, arXiv:1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.grids import is_grid, lowest_code, num_codes
from rl_training.models.masking import ObsView
from rl_training.models.mlp import HIDDEN_GAIN, MLP, orthogonal
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.seams import is_own
from rl_training.models.torsos import TorsoOptions, VectorTorso, make_torso

INPUT_CLIP = 5.0
VALUE_GAIN = 1.0
CODE_SIZE = 4


class RandomDistillation(nn.Module):
    """A random network that never learns, one that learns to predict it where it has been, and a value function."""

    def __init__(self, seen: Spaces, options: TorsoOptions, features: int) -> None:
        super().__init__()
        self.view = ObsView(seen)
        self.codes = CodeVectors(self.view.space, options)
        self.normalizer = ObsNormalizer(self.codes.space, clip=INPUT_CLIP)
        self.target = nn.Sequential(torso := self._torso(options), _linear(torso.out_features, features))
        self.target.requires_grad_(False)
        self.predictor = nn.Sequential(
            torso := self._torso(options),
            MLP(torso.out_features, [torso.out_features], "relu"),
            _linear(torso.out_features, features),
        )
        self.critic = nn.Sequential(
            torso := self._torso(options), orthogonal(nn.Linear(torso.out_features, 1), VALUE_GAIN)
        )

    def _torso(self, options: TorsoOptions) -> Any:
        return make_torso(self.codes.space, _packaged(options, self.view.space))

    def _read(self, obs: Tree) -> Tree:
        return self.normalizer(self.codes(self.view.seen(obs)))

    def forward(self, obs: Tree) -> Tensor:
        """The mean squared error of the prediction, one for each row."""
        seen = self._read(obs)
        with torch.no_grad():
            target = self.target(seen)
        return (self.predictor(seen) - target).square().mean(dim=-1)

    def values(self, obs: Tree) -> Tensor:
        """Estimates the discounted sum of the bonuses that follow each row."""
        return self.critic(self._read(obs)).squeeze(-1)

    @torch.no_grad()
    def update_statistics(self, obs: Tree) -> None:
        self.normalizer.update(self.codes(self.view.seen(obs)))


class CodeVectors(nn.Module):
    """Observations as vectors where they are codes, so that they are normalised like other numbers.

    Normalised, a code is large where it is rare: the first step onto a cell of a grid changes all features. To a torso
    that reads the codes themselves it is one cell of many, and the predictor knows the rest. A code in a grid is
    `CODE_SIZE` random numbers, another code is one of as many as there are.
    """

    table: Tensor  # the random numbers of each code in a grid

    def __init__(self, space: gym.Space, options: TorsoOptions) -> None:
        super().__init__()
        self.space = space
        self.parts = nn.ModuleDict()
        self.is_grid = is_grid(space)
        self.one_hot: VectorTorso | None = None
        if isinstance(space, spaces.Dict):
            parts = {key: CodeVectors(part, options) for key, part in space.items()}
            self.parts.update(parts)
            self.space = spaces.Dict({key: part.space for key, part in parts.items()})
        elif self.is_grid:
            self.first = lowest_code(space)
            self.register_buffer("table", torch.randn(num_codes(space) or 0, CODE_SIZE))
            self.space = _numbers(spaces.flatdim(space) * CODE_SIZE)
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            self.one_hot = VectorTorso(space, replace(options, hidden_sizes=()))
            self.space = _numbers(self.one_hot.out_features)

    def forward(self, obs: Tree) -> Tree:
        if isinstance(obs, Mapping):
            return {key: part(obs[key]) for key, part in self.parts.items()}
        if self.is_grid:
            return self.table[obs.flatten(1).long() - self.first].flatten(1)
        return obs if self.one_hot is None else self.one_hot(obs)


def _numbers(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _packaged(options: TorsoOptions, space: gym.Space) -> TorsoOptions:
    """The options without torsos of the user's own, which may be anything but random, and without those of grids."""
    chosen, kwargs = options.torso, options.torso_kwargs
    if isinstance(chosen, Mapping):
        assert isinstance(space, spaces.Dict)
        named = {key: torso for key, torso in chosen.items() if not is_own(torso) and not is_grid(space[key])}
        return replace(options, torso=named, torso_kwargs={key: kwargs[key] for key in kwargs.keys() & named.keys()})
    return replace(options, torso=None, torso_kwargs={}) if is_own(chosen) or is_grid(space) else options


def _linear(in_features: int, out_features: int) -> nn.Linear:
    return orthogonal(nn.Linear(in_features, out_features), HIDDEN_GAIN)
