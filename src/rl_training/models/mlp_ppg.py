"""PPG's network: one trunk, a policy head, a value head and an auxiliary value head (Cobbe et al., 2020, section 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic, Evaluated, PolicyOptions
from rl_training.models.mlp import orthogonal


class AuxiliaryEvaluated(NamedTuple):
    values: Tensor
    aux_values: Tensor
    dist: Tensor


class MLPPPGModel(ActorCritic):
    """The single-network variant (section 3.4); the trunk is the shared torso of the space, a CNN for images.

    In the policy phase the value head reads the features without passing its gradient on to the trunk; in the
    auxiliary phase both value heads pass it on.
    """

    def __init__(self, spaces: Spaces, options: PolicyOptions) -> None:
        super().__init__(spaces, replace(options, share_torso=True))
        self.aux_value_head = orthogonal(nn.Linear(self.actor_torso.out_features, 1), 1.0)

    def evaluate_actions(self, obs: Tree, actions: Tensor) -> Evaluated:
        """Evaluates actions for the policy phase."""
        features = self.actor_torso(self._normalized(obs))
        dist = self._dist(features, obs)
        values = self._value(features.detach())
        return Evaluated(self.head.log_probs(dist, actions), self.head.entropy(dist), values, dist)

    def evaluate_auxiliary(self, obs: Tree) -> AuxiliaryEvaluated:
        """Evaluates observations for the auxiliary phase."""
        features = self.actor_torso(self._normalized(obs))
        aux_values = F.linear(features, self.aux_value_head.weight, self.aux_value_head.bias).squeeze(-1)
        return AuxiliaryEvaluated(self._value(features), aux_values, self._dist(features, obs))
