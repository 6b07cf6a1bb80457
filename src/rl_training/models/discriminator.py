"""The discriminator of adversarial imitation: how much a state and an action look like the expert's."""

from __future__ import annotations

from dataclasses import replace

import torch
from gymnasium import spaces as gym_spaces
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.masking import ObsView
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import TorsoOptions, make_torso


class Discriminator(nn.Module):
    """A logit that is high where the expert is; `smooth` bounds its slope by spectral norm (Miyato et al., 2018)."""

    def __init__(self, spaces: Spaces, options: TorsoOptions, *, smooth: bool) -> None:
        super().__init__()
        self.view = ObsView(spaces)
        pair = gym_spaces.Dict({"obs": self.view.space, "action": spaces.action})
        self.normalizer = ObsNormalizer(pair)
        # The torso that the user chose is for observations; actions are numbers of the space's own.
        chosen, kwargs = {"obs": options.torso}, {"obs": options.torso_kwargs}
        self.torso = make_torso(pair, replace(options, torso=chosen, torso_kwargs=kwargs))
        self.logit = nn.Linear(self.torso.out_features, 1)
        if smooth:
            for module in self.torso.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    spectral_norm(module)

    def forward(self, obs: Tree, actions: Tensor) -> Tensor:
        """`logits_expert_is_high`, one for each row; actions are what the environment executes."""
        pair = self.normalizer({"obs": self.view.seen(obs), "action": actions})
        return self.logit(self.torso(pair)).squeeze(-1)

    @torch.no_grad()
    def update_statistics(self, obs: Tree, actions: Tensor) -> None:
        """Takes the scale of the inputs from these rows."""
        self.normalizer.update({"obs": self.view.seen(obs), "action": actions})
