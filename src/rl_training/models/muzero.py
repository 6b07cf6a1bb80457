"""MuZero's three functions: representation, dynamics and prediction (Schrittwieser et al., 2020)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from gymnasium import spaces as gym_spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.masking import ObsView
from rl_training.models.mlp import MLP
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import Torso, TorsoOptions, make_torso
from rl_training.ops.transforms import expected_value, signed_hyperbolic, signed_parabolic, two_hot


@dataclass(frozen=True)
class MuZeroOptions:
    torso: TorsoOptions
    latent_size: int
    hidden_size: int
    support_size: int
    normalize_obs: bool


class Unrolled(NamedTuple):
    """Logits along an unroll: `[K + 1, B, …]`, the rewards' `[K, B, …]`."""

    policy: Tensor
    value: Tensor
    reward: Tensor
    latents: Tensor
    routing: tuple[Tensor, ...] = ()  # [N, E] router probabilities of each mixture of experts, if the model has any


def unit_range(x: Tensor) -> Tensor:
    """Each row scaled to [0, 1]: the range of the actions that enter the dynamics beside it."""
    low, high = x.aminmax(dim=-1, keepdim=True)
    return (x - low) / (high - low + 1e-5)


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x, with its gradient scaled."""
    return x * factor + x.detach() * (1.0 - factor)


def zeroed(layer: nn.Linear) -> nn.Linear:
    """A last layer that starts by saying nothing: uniform policies, rewards and values of exactly 0."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def with_biases(torso: Torso) -> Torso:
    """Biases as wide as the first layer's inputs. Without them a ReLU network scales its output with its input, and
    `unit_range` would take away how far from 0 an observation is."""
    for module in torso.modules():
        if isinstance(module, MLP):
            for layer in module.layers:
                assert isinstance(layer, nn.Linear)
                nn.init.uniform_(layer.bias, -(layer.in_features**-0.5), layer.in_features**-0.5)
    return torso


class PlanningModel(nn.Module):
    """A model for searches and updates. Scalars are categorical over −S … S after the hyperbolic transform."""

    support: Tensor

    def __init__(self, spaces: Spaces, support_size: int) -> None:
        super().__init__()
        if not isinstance(spaces.action, gym_spaces.Discrete):
            raise ConfigError(f"tree search needs a Discrete action space, got {spaces.action}")
        self.num_actions = int(spaces.action.n)
        self.view = ObsView(spaces)
        support = torch.arange(-support_size, support_size + 1, dtype=torch.float32)
        self.register_buffer("support", support, persistent=False)
        self.largest_scalar = float(signed_parabolic(torch.tensor(float(support_size), device="cpu")))

    @property
    def device(self) -> torch.device:
        return self.support.device

    @abstractmethod
    def update_statistics(self, obs: Tree) -> None:
        """Moves the observation statistics by a batch of raw observations."""

    @abstractmethod
    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """Predicts along actions `[K, B]` what an update trains."""

    @abstractmethod
    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, values, policy logits) of roots; `root` also rules out what their observations do."""

    def root(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, values, policy logits) of roots, where actions that are not legal have probability 0."""
        latents, values, logits = self.initial(obs)
        return latents, values, self.view.masked(logits, obs)

    @abstractmethod
    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(latents, rewards, values, policy logits) after an action, as the search asks for them."""

    def scalar(self, logits: Tensor) -> Tensor:
        return signed_parabolic(expected_value(logits, self.support))

    def categorical(self, scalars: Tensor) -> Tensor:
        """Two-hot targets of scalars."""
        return two_hot(signed_hyperbolic(scalars), self.support)


class MuZeroModel(PlanningModel):
    """Latents are vectors in [0, 1]."""

    def __init__(self, spaces: Spaces, options: MuZeroOptions) -> None:
        super().__init__(spaces, options.support_size)
        self.latent_size = options.latent_size
        bins = len(self.support)
        self.normalizer = ObsNormalizer(self.view.space) if options.normalize_obs else None
        self.torso = with_biases(make_torso(self.view.space, options.torso))
        self.project = nn.Linear(self.torso.out_features, options.latent_size)
        self.dynamics = MLP(options.latent_size + self.num_actions, [options.hidden_size], "relu")
        self.next_latent = nn.Linear(options.hidden_size, options.latent_size)
        self.reward_head = zeroed(nn.Linear(options.hidden_size, bins))
        self.prediction = MLP(options.latent_size, [options.hidden_size], "relu")
        self.policy_head = zeroed(nn.Linear(options.hidden_size, self.num_actions))
        self.value_head = zeroed(nn.Linear(options.hidden_size, bins))

    def represent(self, obs: Tree) -> Tensor:
        """Observations `[B, …]` → latents `[B, L]`."""
        seen = self.view.seen(obs)
        return unit_range(self.project(self.torso(seen if self.normalizer is None else self.normalizer(seen))))

    def update_statistics(self, obs: Tree) -> None:
        if self.normalizer is not None:
            self.normalizer.update(self.view.seen(obs))

    def next_latents(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(next latents, hidden features of the step, from which the reward is read)."""
        inputs = torch.cat([latents, F.one_hot(actions, self.num_actions).to(latents.dtype)], dim=-1)
        hidden = self.dynamics(inputs)
        return unit_range(self.next_latent(hidden)), hidden

    def predict(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """(policy logits, value logits)."""
        features = self.prediction(latents)
        return self.policy_head(features), self.value_head(features)

    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """Unrolls observations `[B, …]` along actions `[K, B]`; each entry to the dynamics halves the gradient."""
        latents, hiddens = [self.represent(obs)], []
        for chosen in actions:
            latent, hidden = self.next_latents(scale_gradient(latents[-1], 0.5), chosen)
            latents.append(latent)
            hiddens.append(hidden)
        stacked = torch.stack(latents)
        policy, value = self.predict(stacked.flatten(0, 1))
        reward = self.reward_head(torch.cat(hiddens))
        shape = stacked.shape[:2]
        return Unrolled(
            policy.unflatten(0, shape), value.unflatten(0, shape), reward.unflatten(0, actions.shape), stacked
        )

    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        latents = self.represent(obs)
        policy, value = self.predict(latents)
        return latents, self.scalar(value), policy

    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        following, hidden = self.next_latents(latents, actions)
        policy, value = self.predict(following)
        return following, self.scalar(self.reward_head(hidden)), self.scalar(value), policy
