"""The policy and the value function of the policy-gradient family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.heads import CategoricalHead, make_head
from rl_training.models.images import has_image
from rl_training.models.masking import ObsView
from rl_training.models.mlp import orthogonal
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import TorsoOptions, make_torso
from rl_training.replaceable import replaceable


class Acted(NamedTuple):
    """A policy's answer for `B` environments.

    Log-probs and values that a learner reads and a policy does not give here are asked for once, for a whole rollout.
    """

    actions: Tensor
    state: Tensor
    logprobs: Tensor | None = None
    values: Tensor | None = None
    extras: dict[str, Tensor] = {}


class Evaluated(NamedTuple):
    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    dist: Tensor


@dataclass(frozen=True)
class PolicyOptions:
    torso: TorsoOptions
    share_torso: bool | None  # None: shared for images, apart for vectors
    log_std_init: float
    state_dependent_std: bool
    squash_actions: bool
    normalize_obs: bool


class ActorCritic(nn.Module):
    """Acts, evaluates actions, values observations. Its recurrent state has width 0: there is nothing to carry."""

    def __init__(self, spaces: Spaces, options: PolicyOptions, *, head_features: int | None = None) -> None:
        """`head_features` is the width that the heads see, where something stands between torso and heads."""
        super().__init__()
        self.view = ObsView(spaces)
        share = has_image(self.view.space) if options.share_torso is None else options.share_torso
        self.normalizer = ObsNormalizer(self.view.space) if options.normalize_obs else None
        self.actor_torso = make_torso(self.view.space, options.torso)
        self.critic_torso = self.actor_torso if share else make_torso(self.view.space, options.torso)
        width = head_features or self.actor_torso.out_features
        self.head = make_head(
            spaces.action,
            width,
            log_std_init=options.log_std_init,
            state_dependent_std=options.state_dependent_std,
            squash_actions=options.squash_actions,
        )
        self.value_head = orthogonal(nn.Linear(width, 1), 1.0)
        self.shares_torso = share

    @property
    def device(self) -> torch.device:
        return self.value_head.weight.device

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.device)

    @replaceable
    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        features = self.actor_torso(self._normalized(obs))
        dist = self._dist(features, obs)
        actions = self.head.mode(dist) if deterministic else self.head.sample(dist, generator)
        if not self.shares_torso:  # one call at a rollout's end is cheaper than one for each of its steps
            return Acted(actions, state)
        return Acted(actions, state, self.head.log_probs(dist, actions), self._value(features))

    @replaceable
    def evaluate_actions(self, obs: Tree, actions: Tensor) -> Evaluated:
        seen = self._normalized(obs)
        features = self.actor_torso(seen)
        dist = self._dist(features, obs)
        values = self._value(features if self.shares_torso else self.critic_torso(seen))
        return Evaluated(self.head.log_probs(dist, actions), self.head.entropy(dist), values, dist)

    @replaceable
    def distribution(self, obs: Tree) -> Tensor:
        """The action distribution's parameters; `head` gives its log-probs, entropy and KL."""
        return self._dist(self.actor_torso(self._normalized(obs)), obs)

    @replaceable
    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        return self._value(self.critic_torso(self._normalized(obs)))

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Turns sampled actions into those that the environments execute."""
        return self.head.to_env(actions)

    def update_statistics(self, obs: Tree) -> None:
        """Moves the observation statistics by a batch of raw observations."""
        if self.normalizer is not None:
            self.normalizer.update(self.view.seen(obs))

    def _normalized(self, obs: Tree) -> Tree:
        seen = self.view.seen(obs)
        return seen if self.normalizer is None else self.normalizer(seen)

    def _dist(self, features: Tensor, obs: Tree) -> Tensor:
        """The distribution's parameters; actions that the observations rule out have probability 0."""
        dist = self.head(features)
        if not self.view.is_masked:
            return dist
        assert isinstance(self.head, CategoricalHead)
        return self.head.renormalized(self.view.masked(dist, obs))

    def _value(self, features: Tensor) -> Tensor:
        return self.value_head(features).squeeze(-1)
