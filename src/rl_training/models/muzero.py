"""MuZero's three functions: representation, dynamics and prediction (Schrittwieser et al., 2020)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from gymnasium import spaces as gym_spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.mlp import MLP
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import Torso, TorsoOptions, make_torso
from rl_training.ops.arrays import Floats, as_array
from rl_training.ops.transforms import expected_value, signed_hyperbolic, signed_parabolic, two_hot

# (latents, actions) → latents, rewards, values, policy logits, for one row of each root. What a model needs to carry
# besides its latent (a recurrent state, the value prefix so far) goes into the latent.
Recurrent = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class MuZeroOptions:
    torso: TorsoOptions = field(default_factory=lambda: TorsoOptions((128,), "relu"))
    latent_size: int = 64
    hidden_size: int = 128
    support_size: int = 25
    normalize_obs: bool = True


class RecurrentWeights(NamedTuple):
    """Views of the parameters of dynamics and prediction, for compiled code; they follow the optimizer."""

    hidden: Floats  # [L + A, H]
    hidden_bias: Floats
    latent: Floats  # [H, L]
    latent_bias: Floats
    features: Floats  # [L, H]
    features_bias: Floats
    reward: Floats  # [bins, H]
    reward_bias: Floats
    policy: Floats  # [A, H]
    policy_bias: Floats
    value: Floats  # [bins, H]
    value_bias: Floats


class PrefixWeights(NamedTuple):
    """The same of the LSTM behind EfficientZero's value prefix, whose gates are input, forget, cell and output."""

    of_input: Floats  # [H, 4U]
    of_state: Floats  # [U, 4U]
    input_bias: Floats
    state_bias: Floats
    horizon: int  # steps until it begins anew


class CompiledModel(NamedTuple):
    """What a search in compiled code needs of a model."""

    weights: RecurrentWeights
    prefix: PrefixWeights | None = None


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


def store_by_input(weight: Tensor) -> None:
    """Lays a weight `[out, in]` out in memory as `[in, out]`, as the compiled search reads it."""
    weight.data = weight.data.t().contiguous().t()


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
    """What searches and updates ask of a model. Scalars are categorical over −S … S after the hyperbolic transform."""

    support: Tensor

    def __init__(self, spaces: Spaces, support_size: int) -> None:
        super().__init__()
        if not isinstance(spaces.action, gym_spaces.Discrete):
            raise ConfigError(f"tree search needs a Discrete action space, got {spaces.action}")
        self.num_actions = int(spaces.action.n)
        support = torch.arange(-support_size, support_size + 1, dtype=torch.float32)
        self.register_buffer("support", support, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.support.device

    @abstractmethod
    def observe(self, obs: Tree) -> None:
        """Moves the observation statistics by a batch of raw observations."""

    @abstractmethod
    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """What an update trains, along actions `[K, B]`."""

    @abstractmethod
    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, values, policy logits) of roots."""

    @abstractmethod
    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(latents, rewards, values, policy logits) after an action, as the search asks for them."""

    def scalar(self, logits: Tensor) -> Tensor:
        return signed_parabolic(expected_value(logits, self.support))

    def categorical(self, scalars: Tensor) -> Tensor:
        """Two-hot targets of scalars."""
        return two_hot(signed_hyperbolic(scalars), self.support)

    def planner(self) -> CompiledModel | Recurrent:
        """What a search asks: something compiled where there is such a form, else `recurrent`."""
        return self.recurrent


class MuZeroModel(PlanningModel):
    """Latents are vectors in [0, 1]."""

    def __init__(self, spaces: Spaces, options: MuZeroOptions) -> None:
        super().__init__(spaces, options.support_size)
        self.latent_size = options.latent_size
        bins = len(self.support)
        self.normalizer = ObsNormalizer(spaces.observation) if options.normalize_obs else None
        self.torso = with_biases(make_torso(spaces.observation, options.torso))
        self.project = nn.Linear(self.torso.out_features, options.latent_size)
        self.dynamics = MLP(options.latent_size + self.num_actions, [options.hidden_size], "relu")
        self.next_latent = nn.Linear(options.hidden_size, options.latent_size)
        self.reward_head = zeroed(nn.Linear(options.hidden_size, bins))
        self.prediction = MLP(options.latent_size, [options.hidden_size], "relu")
        self.policy_head = zeroed(nn.Linear(options.hidden_size, self.num_actions))
        self.value_head = zeroed(nn.Linear(options.hidden_size, bins))
        for layer in self._wide_layers():
            store_by_input(layer.weight)

    def represent(self, obs: Tree) -> Tensor:
        """Observations `[B, …]` → latents `[B, L]`."""
        return unit_range(self.project(self.torso(obs if self.normalizer is None else self.normalizer(obs))))

    def observe(self, obs: Tree) -> None:
        if self.normalizer is not None:
            self.normalizer.update(obs)

    def imagine(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(next latents, hidden features of the step, from which the reward is read)."""
        inputs = torch.cat([latents, F.one_hot(actions, self.num_actions).to(latents.dtype)], dim=-1)
        hidden = self.dynamics(inputs)
        return unit_range(self.next_latent(hidden)), hidden

    def predict(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """(policy logits, value logits)."""
        features = self.prediction(latents)
        return self.policy_head(features), self.value_head(features)

    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """From observations `[B, …]` along actions `[K, B]`; the gradient is halved at each entry to the dynamics."""
        latents, hiddens = [self.represent(obs)], []
        for chosen in actions:
            latent, hidden = self.imagine(scale_gradient(latents[-1], 0.5), chosen)
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
        following, hidden = self.imagine(latents, actions)
        policy, value = self.predict(following)
        return following, self.scalar(self.reward_head(hidden)), self.scalar(value), policy

    def planner(self) -> CompiledModel | Recurrent:
        if self.device.type != "cpu":
            return self.recurrent
        pairs = [(layer.weight.t(), layer.bias) for layer in self._wide_layers()]
        pairs += [(head.weight, head.bias) for head in (self.reward_head, self.policy_head, self.value_head)]
        return CompiledModel(RecurrentWeights(*(as_array(p) for pair in pairs for p in pair)))

    def _wide_layers(self) -> tuple[Any, ...]:
        return self.dynamics.layers[0], self.next_latent, self.prediction.layers[0]
