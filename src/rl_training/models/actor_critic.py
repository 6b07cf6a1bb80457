"""The policy and the value function of the policy-gradient family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.fused import FusedNet
from rl_training.models.heads import CategoricalHead, make_head
from rl_training.models.mlp import orthogonal
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import TorsoOptions, VectorTorso, has_image, make_torso
from rl_training.ops.fused import categorical, log_softmax


class Acted(NamedTuple):
    """A policy's answer for `B` environments; what is None the collector asks for once, for a whole rollout."""

    actions: Tensor
    logprobs: Tensor | None
    state: Tensor
    values: Tensor | None = None
    extras: dict[str, Tensor] = {}


class Evaluated(NamedTuple):
    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    dist: Tensor


@dataclass(frozen=True)
class PolicyOptions:
    torso: TorsoOptions = field(default_factory=TorsoOptions)
    share_torso: bool | None = None  # None: shared for images, apart for vectors
    log_std_init: float = 0.0
    normalize_obs: bool = False


class FusedPolicy:
    """An actor-critic of two MLPs with a choice among a few actions, in NumPy: see `models.fused`."""

    def __init__(self, actor: FusedNet, critic: FusedNet, normalizer: ObsNormalizer | None) -> None:
        self.actor = actor
        self.critic = critic
        self.normalizer = normalizer
        self._noise_rows = 0
        self._noise = torch.empty(0, 0, device="cpu")

    def inputs(self, obs: Tree) -> NDArray[np.float32] | None:
        """The normalised observations, or None for those that need a conversion first."""
        if not (isinstance(obs, Tensor) and obs.is_cpu and obs.dtype == torch.float32 and obs.dim() == 2):
            return None
        return (obs if self.normalizer is None else self.normalizer(obs)).numpy()

    def act(
        self, inputs: NDArray[np.float32], generator: torch.Generator | None, deterministic: bool
    ) -> NDArray[np.int64]:
        """The head's `mode`, or its `sample` with the same random numbers."""
        logits = self.actor(inputs)
        if deterministic:
            return logits.argmax(axis=0)
        if len(inputs) != self._noise_rows:
            self._noise_rows = len(inputs)
            with torch.inference_mode(mode=False):  # it will be written to in other modes as well
                self._noise = torch.empty(logits.shape[::-1], device="cpu")
        logits -= np.log(self._noise.exponential_(generator=generator).numpy().T)
        return logits.argmax(axis=0)


class ActorCritic(nn.Module):
    """Acts, evaluates actions, values observations. Its recurrent state has width 0: there is nothing to carry."""

    def __init__(self, spaces: Spaces, options: PolicyOptions, *, head_features: int | None = None) -> None:
        """`head_features` is the width that the heads see, where something stands between torso and heads."""
        super().__init__()
        share = has_image(spaces.observation) if options.share_torso is None else options.share_torso
        self.normalizer = ObsNormalizer(spaces.observation) if options.normalize_obs else None
        self.actor_torso = make_torso(spaces.observation, options.torso)
        self.critic_torso = self.actor_torso if share else make_torso(spaces.observation, options.torso)
        width = head_features or self.actor_torso.out_features
        self.head = make_head(spaces.action, width, log_std_init=options.log_std_init)
        self.value_head = orthogonal(nn.Linear(width, 1), 1.0)
        self.shares_torso = share
        self.fused = None if share or head_features else self._fused_policy()

    @property
    def device(self) -> torch.device:
        return self.value_head.weight.device

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.device)

    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        if self.fused and not torch.is_grad_enabled() and (inputs := self.fused.inputs(obs)) is not None:
            return Acted(torch.from_numpy(self.fused.act(inputs, generator, deterministic)), None, state)
        features = self.actor_torso(self._normalized(obs))
        dist = self.head(features)
        actions = self.head.mode(dist) if deterministic else self.head.sample(dist, generator)
        # With a shared torso the value is nearly free here; apart, all values of a rollout cost one call at its end.
        values = self._value(features) if self.shares_torso else None
        return Acted(actions, self.head.log_probs(dist, actions), state, values)

    def evaluate_actions(self, obs: Tree, actions: Tensor) -> Evaluated:
        if self.fused and not torch.is_grad_enabled() and (inputs := self.fused.inputs(obs)) is not None:
            said = categorical(self.fused.actor(inputs), actions.numpy())
            columns = (said.logprobs, said.entropy, self.fused.critic(inputs)[0], said.dist.T)
            return Evaluated(*map(torch.from_numpy, columns))
        obs = self._normalized(obs)
        features = self.actor_torso(obs)
        dist = self.head(features)
        values = self._value(features if self.shares_torso else self.critic_torso(obs))
        return Evaluated(self.head.log_probs(dist, actions), self.head.entropy(dist), values, dist)

    def distribution(self, obs: Tree) -> Tensor:
        """The action distribution's parameters; `head` gives its log-probs, entropy and KL."""
        if self.fused and not torch.is_grad_enabled() and (inputs := self.fused.inputs(obs)) is not None:
            return torch.from_numpy(log_softmax(self.fused.actor(inputs)).T)
        return self.head(self.actor_torso(self._normalized(obs)))

    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        if self.fused and not torch.is_grad_enabled() and (inputs := self.fused.inputs(obs)) is not None:
            return torch.from_numpy(self.fused.critic(inputs)[0])
        return self._value(self.critic_torso(self._normalized(obs)))

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """What the environments execute for sampled actions."""
        return self.head.to_env(actions)

    def observe(self, obs: Tree) -> None:
        """Moves the observation statistics by a batch of raw observations."""
        if self.normalizer is not None:
            self.normalizer.update(obs)

    def _fused_policy(self) -> FusedPolicy | None:
        actor, critic, head = self.actor_torso, self.critic_torso, self.head
        if not (isinstance(actor, VectorTorso) and isinstance(critic, VectorTorso) and actor.mlp.fused):
            return None
        if actor.classes or not isinstance(head, CategoricalHead) or head.joint:
            return None
        return FusedPolicy(FusedNet(actor.mlp, head.linear), FusedNet(critic.mlp, self.value_head), self.normalizer)

    def _normalized(self, obs: Tree) -> Tree:
        return obs if self.normalizer is None else self.normalizer(obs)

    def _value(self, features: Tensor) -> Tensor:
        return F.linear(features, self.value_head.weight, self.value_head.bias).squeeze(-1)
