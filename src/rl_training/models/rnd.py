"""The networks of random network distillation (Burda et al., 2019, arXiv:1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.masking import ObsView
from rl_training.models.mlp import HIDDEN_GAIN, MLP, orthogonal
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.seams import is_own
from rl_training.models.torsos import TorsoOptions, make_torso

INPUT_CLIP = 5.0
VALUE_GAIN = 1.0


class RandomDistillation(nn.Module):
    """A random network that never learns, one that learns to predict it where it has been, and a value function."""

    def __init__(self, spaces: Spaces, options: TorsoOptions, features: int) -> None:
        super().__init__()
        self.view = ObsView(spaces)
        self.normalizer = ObsNormalizer(self.view.space, clip=INPUT_CLIP)
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
        return make_torso(self.view.space, _packaged(options))

    def forward(self, obs: Tree) -> Tensor:
        """The mean squared error of the prediction, one for each row."""
        seen = self.normalizer(self.view.seen(obs))
        with torch.no_grad():
            target = self.target(seen)
        return (self.predictor(seen) - target).square().mean(dim=-1)

    def values(self, obs: Tree) -> Tensor:
        """Estimates the discounted sum of the bonuses that follow each row."""
        return self.critic(self.normalizer(self.view.seen(obs))).squeeze(-1)

    @torch.no_grad()
    def update_statistics(self, obs: Tree) -> None:
        self.normalizer.update(self.view.seen(obs))


def _packaged(options: TorsoOptions) -> TorsoOptions:
    """The options without torsos of the user's own, which may be anything but random."""
    chosen, kwargs = options.torso, options.torso_kwargs
    if isinstance(chosen, Mapping):
        named = {key: torso for key, torso in chosen.items() if not is_own(torso)}
        return replace(options, torso=named, torso_kwargs={key: kwargs[key] for key in kwargs.keys() & named.keys()})
    return replace(options, torso=None, torso_kwargs={}) if is_own(chosen) else options


def _linear(in_features: int, out_features: int) -> nn.Linear:
    return orthogonal(nn.Linear(in_features, out_features), HIDDEN_GAIN)
