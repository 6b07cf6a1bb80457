"""MuZero's three functions: representation, dynamics and prediction (Schrittwieser et al., 2020)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces as gym_spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.images import is_image
from rl_training.models.masking import ObsView
from rl_training.models.mlp import MLP
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.planes import PlanesHead, PlanesLayers, PlanesStep, PlanesTorso, tower
from rl_training.models.sampled import SampledActions, encoded_size, number_of_samples
from rl_training.models.torsos import Torso, TorsoOptions, make_torso
from rl_training.ops.categorical import cross_entropy
from rl_training.ops.transforms import expected_value, signed_hyperbolic, signed_parabolic, two_hot

VECTOR_SIZE, PLANE_CHANNELS = 64, 16  # of latents, where no size is given


@dataclass(frozen=True)
class MuZeroOptions:
    torso: TorsoOptions
    latent: Literal["auto", "vector", "planes"]
    latent_size: int | None
    residual_blocks: int
    hidden_size: int
    support_size: int
    normalize_obs: bool
    sampled_actions: int | None
    players: int


class Unrolled(NamedTuple):
    """Logits along an unroll: `[K + 1, B, …]`, the rewards' `[K, B, …]`."""

    policy: Tensor
    value: Tensor
    reward: Tensor
    latents: Tensor
    routing: tuple[Tensor, ...] = ()  # [N, E] router probabilities of each mixture of experts, if the model has any


def unit_range(x: Tensor) -> Tensor:
    """Each row scaled to [0, 1]: the range of the actions that enter the dynamics beside it."""
    low, high = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)  # `aminmax` takes many times as long
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


def has_planes(space: gym.Space, latent: Literal["auto", "vector", "planes"]) -> bool:
    """Whether latents of observations of the space are planes, which by themselves images and boards have."""
    if latent == "planes" and not is_image(space):
        raise ConfigError(f"latent: planes needs images or boards, with two or three axes; got {space}")
    return latent != "vector" and is_image(space)


class PlanningModel(nn.Module):
    """A model for searches and updates. Scalars are categorical over −S … S after the hyperbolic transform.

    `num_actions` is how many a node of a search has: all there are, or as many as the policy samples.
    """

    support: Tensor
    state_size: int = 0  # numbers that a policy remembers of an episode

    def __init__(self, spaces: Spaces, support_size: int, *, samples: int | None = None) -> None:
        super().__init__()
        if samples is None and not isinstance(spaces.action, gym_spaces.Discrete):
            raise ConfigError(f"this tree search needs a Discrete action space, got {spaces.action}")
        self.num_actions = samples or int(getattr(spaces.action, "n", 0))
        self.view = ObsView(spaces)
        support = torch.arange(-support_size, support_size + 1, dtype=torch.float32)
        self.register_buffer("support", support, persistent=False)
        self.largest_scalar = float(signed_parabolic(torch.tensor(float(support_size), device="cpu")))

    @property
    def device(self) -> torch.device:
        return self.support.device

    @property
    def sampled(self) -> SampledActions | None:
        """The head of a policy whose actions are sampled, if they are."""
        return None

    @abstractmethod
    def update_statistics(self, obs: Tree) -> None:
        """Moves the observation statistics by a batch of raw observations."""

    @abstractmethod
    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """Predicts along actions `[K, B]` what an update trains."""

    @abstractmethod
    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, values, policy logits) of roots; `root` also rules out what their observations do."""

    def initial_state(self, batch: int) -> Tensor:
        """The states `[B, S]` of policies at the beginning of episodes."""
        return self.support.new_zeros(batch, self.state_size)

    def initial_after(self, state: Tensor, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """`initial` of observations that follow what the states remember of their episodes."""
        return self.initial(obs)

    def remember(self, state: Tensor, obs: Tree, actions: Tensor) -> Tensor:
        """The states after these actions at these observations."""
        return state

    def root(self, obs: Tree, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, values, policy logits) of roots, where actions that are not legal have probability 0."""
        latents, values, logits = self.initial(obs) if state is None else self.initial_after(state, obs)
        return latents, values, self.view.masked(logits, obs)

    @abstractmethod
    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(latents, rewards, values, policy logits) after an action, as the search asks for them."""

    def policy_error(self, policy: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross-entropies of predicted policies `[K + 1, B, …]` and those that searches found."""
        if self.sampled is None:
            return cross_entropy(policy, batch["policies"])
        return -(batch["policies"] * self.sampled.log_probs(policy, batch["candidates"])).sum(-1)

    def scalar(self, logits: Tensor) -> Tensor:
        return signed_parabolic(expected_value(logits, self.support))

    def categorical(self, scalars: Tensor) -> Tensor:
        """Two-hot targets of scalars."""
        return two_hot(signed_hyperbolic(scalars), self.support)


class MuZeroModel(PlanningModel):
    """Latents are rows in [0, 1]: vectors between MLPs, or the planes of an image or board between residual towers."""

    def __init__(self, spaces: Spaces, options: MuZeroOptions) -> None:
        samples = number_of_samples(spaces.action, options.sampled_actions)
        super().__init__(spaces, options.support_size, samples=samples)
        self._action, self._samples = spaces.action, samples
        self.action_size = self.num_actions if samples is None else encoded_size(spaces.action)
        self.normalizer = ObsNormalizer(self.view.space) if options.normalize_obs else None
        if has_planes(self.view.space, options.latent):
            self._make_towers(self.view.space, options)
        else:
            self._make_mlps(self.view.space, options)

    def _make_mlps(self, space: gym.Space, options: MuZeroOptions) -> None:
        size, hidden, bins = options.latent_size or VECTOR_SIZE, options.hidden_size, len(self.support)
        self.latent_size = size
        self.torso = with_biases(make_torso(space, options.torso))
        self.project: nn.Module = nn.Linear(self.torso.out_features, size)
        self.dynamics: Any = MLP(size + self.action_size, [hidden], "relu")
        self.next_latent: nn.Module = nn.Linear(hidden, size)
        self.reward_head: nn.Module = zeroed(nn.Linear(hidden, bins))
        self.prediction: Any = MLP(size, [hidden], "relu")
        self.policy_head: nn.Module = self._last_of_policy(hidden)
        self.value_head: nn.Module = zeroed(nn.Linear(hidden, bins))

    def _make_towers(self, space: gym.Space, options: MuZeroOptions) -> None:
        blocks, hidden, bins = options.residual_blocks, options.hidden_size, len(self.support)
        channels = options.latent_size or PLANE_CHANNELS
        self.torso = PlanesTorso(space, options.torso.image_layout, channels=channels, blocks=blocks)
        shape, self.latent_size = self.torso.shape, self.torso.out_features
        self.project = nn.Identity()
        self.dynamics = PlanesStep(shape, self.action_size, blocks, on_board=options.players == 2)
        self.next_latent = PlanesLayers(shape, nn.Conv2d(channels, channels, 3, padding=1))
        self.reward_head = PlanesHead(shape, hidden, zeroed(nn.Linear(hidden, bins)))
        self.prediction = PlanesLayers(shape, nn.Sequential(tower(channels, blocks), nn.ReLU()))
        self.policy_head = PlanesHead(shape, hidden, self._last_of_policy(hidden))
        self.value_head = PlanesHead(shape, hidden, zeroed(nn.Linear(hidden, bins)))

    def _last_of_policy(self, hidden: int) -> nn.Module:
        if self._samples is None:
            return zeroed(nn.Linear(hidden, self.num_actions))
        return SampledActions(self._action, hidden, self._samples)

    @property
    def sampled(self) -> SampledActions | None:
        last = self.policy_head.last if isinstance(self.policy_head, PlanesHead) else self.policy_head
        return last if isinstance(last, SampledActions) else None

    def encoded(self, actions: Tensor, like: Tensor) -> Tensor:
        if self.sampled is None:
            return F.one_hot(actions, self.num_actions).to(like.dtype)
        return self.sampled.encoded(actions).to(like.dtype)

    def represent(self, obs: Tree) -> Tensor:
        """Observations `[B, …]` → latents `[B, L]`."""
        seen = self.view.seen(obs)
        return unit_range(self.project(self.torso(seen if self.normalizer is None else self.normalizer(seen))))

    def update_statistics(self, obs: Tree) -> None:
        if self.normalizer is not None:
            self.normalizer.update(self.view.seen(obs))

    def next_latents(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(next latents, hidden features of the step, from which the reward is read)."""
        hidden = self.dynamics(torch.cat([latents, self.encoded(actions, latents)], dim=-1))
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
        rewards = reward.unflatten(0, actions.shape[:2])
        return Unrolled(policy.unflatten(0, shape), value.unflatten(0, shape), rewards, stacked)

    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        latents = self.represent(obs)
        policy, value = self.predict(latents)
        return latents, self.scalar(value), policy

    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        following, hidden = self.next_latents(latents, actions)
        policy, value = self.predict(following)
        reward, value = self.scalar(torch.stack([self.reward_head(hidden), value]))
        return following, reward, value, policy
