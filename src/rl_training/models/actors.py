"""Actors that learn through critics: a squashed Gaussian, a categorical, and a point with noise around it.

An actor offers `Candidates`: actions of each state, with the weight that each has in an expectation over the policy. A
Gaussian offers one sample; a categorical all its actions, weighted by their probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import Acted
from rl_training.models.exploration import ExplorationNoise, as_uniform
from rl_training.models.heads import CategoricalHead
from rl_training.models.masking import ObsView
from rl_training.models.mlp import MLP
from rl_training.models.squashed import SquashedGaussian, bounded_scale
from rl_training.models.torsos import TorsoOptions, make_torso


class Candidates(NamedTuple):
    actions: Tensor | None  # [N, size], or None: every action of a Discrete space
    weights: Tensor  # [N, K]
    logprobs: Tensor  # [N, K]


class Actor(nn.Module):
    def __init__(self, spaces: Spaces, torso: TorsoOptions) -> None:
        super().__init__()
        self.view = ObsView(spaces)
        self.torso = make_torso(self.view.space, torso)
        for module in self.torso.modules():
            if isinstance(module, MLP):
                module.precision = torso.precision

    @property
    @abstractmethod
    def last(self) -> nn.Linear:
        """The layer that gives the distribution."""

    @property
    def device(self) -> torch.device:
        return self.last.weight.device

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.device)

    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        features = self.read(obs)
        return Acted(self.mode(features), state) if deterministic else self.explore(features, state, generator)

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        return Acted(self.random(len(state), generator), state)

    def read(self, obs: Tree) -> Tensor:
        """The features that actions are chosen by."""
        return self.torso(self.view.seen(obs))

    @abstractmethod
    def mode(self, features: Tensor) -> Tensor: ...

    @abstractmethod
    def explore(self, features: Tensor, state: Tensor, generator: torch.Generator | None) -> Acted: ...

    @abstractmethod
    def random(self, rows: int, generator: torch.Generator | None) -> Tensor: ...

    @abstractmethod
    def candidates(self, obs: Tree, generator: torch.Generator | None) -> Candidates: ...

    @abstractmethod
    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]: ...


class BoxActor(Actor):
    def __init__(self, spaces: Spaces, torso: TorsoOptions, *, noise_correlation: float) -> None:
        scale = bounded_scale(spaces.action)
        super().__init__(spaces, torso)
        self.scale = scale
        self.noise = ExplorationNoise(scale.size, noise_correlation)

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, self.noise.state_size, device=self.device)

    def explore(self, features: Tensor, state: Tensor, generator: torch.Generator | None) -> Acted:
        noise, state = self.noise.draw(state, generator)
        return Acted(self.disturbed(features, noise), state)

    @abstractmethod
    def disturbed(self, features: Tensor, noise: Tensor) -> Tensor:
        """The actions that standard normal `noise` leads to."""

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        if not self.noise.correlation:
            return super().act_randomly(obs, state, generator=generator)
        noise, state = self.noise.draw(state, generator)
        return Acted(as_uniform(noise), state)

    def random(self, rows: int, generator: torch.Generator | None) -> Tensor:
        return 2.0 * torch.rand(rows, self.scale.size, generator=generator, device=self.device) - 1.0

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.scale.to_env(actions.reshape(-1, *self.scale.shape))

    def only(self, actions: Tensor, logprobs: Tensor) -> Candidates:
        """One candidate of each state."""
        logprobs = logprobs.unsqueeze(-1)
        return Candidates(actions, torch.ones_like(logprobs), logprobs)


class GaussianActor(BoxActor):
    """Samples from the tanh of a Gaussian."""

    def __init__(self, spaces: Spaces, torso: TorsoOptions, *, noise_correlation: float) -> None:
        super().__init__(spaces, torso, noise_correlation=noise_correlation)
        self.head = SquashedGaussian(self.torso.out_features, self.scale.size)
        self.target_entropy = -float(self.scale.size)

    @property
    def last(self) -> nn.Linear:
        return self.head.linear

    def mode(self, features: Tensor) -> Tensor:
        return self.head.mode(features)

    def disturbed(self, features: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self.head(features)
        return (mean + log_std.exp() * noise).tanh()

    def candidates(self, obs: Tree, generator: torch.Generator | None) -> Candidates:
        return self.only(*self.head.sample(self.torso(obs), generator))


class PointActor(BoxActor):
    """One action of each state, the tanh of a linear layer; it explores by Gaussian noise. It reads its parameters."""

    def __init__(self, spaces: Spaces, torso: TorsoOptions, params: Any) -> None:
        super().__init__(spaces, torso, noise_correlation=params.noise_correlation)
        self.linear = nn.Linear(self.torso.out_features, self.scale.size)
        self.params = params

    @property
    def last(self) -> nn.Linear:
        return self.linear

    def apply_controls(self, values: Mapping[str, float]) -> None:
        self.params.move(values)

    def mode(self, features: Tensor) -> Tensor:
        return self.linear(features).tanh()

    def disturbed(self, features: Tensor, noise: Tensor) -> Tensor:
        return (self.mode(features) + self.params.exploration_noise * noise).clamp_(-1.0, 1.0)

    def candidates(self, obs: Tree, generator: torch.Generator | None) -> Candidates:
        actions = self.mode(self.torso(obs))
        return self.only(actions, actions.new_zeros(len(actions)))


class CategoricalActor(Actor):
    """Probabilities of a Discrete space's actions."""

    # The entropy that a policy over so many actions is to have, as a share of the highest.
    ENTROPY_SHARE = 0.5

    def __init__(self, spaces: Spaces, torso: TorsoOptions) -> None:
        super().__init__(spaces, torso)
        assert isinstance(spaces.action, gym_spaces.Discrete)
        count = int(spaces.action.n)
        self.head = CategoricalHead(self.torso.out_features, [count], start=spaces.action.start)
        self.target_entropy = self.ENTROPY_SHARE * float(torch.tensor(float(count), device="cpu").log())

    @property
    def last(self) -> nn.Linear:
        return self.head.linear

    def read(self, obs: Tree) -> Tensor:
        """The log-probabilities of actions, of which only legal ones have any."""
        logprobs = self.head(super().read(obs))
        return self.head.renormalized(self.view.masked(logprobs, obs)) if self.view.is_masked else logprobs

    def mode(self, features: Tensor) -> Tensor:
        return self.head.mode(features)

    def explore(self, features: Tensor, state: Tensor, generator: torch.Generator | None) -> Acted:
        return Acted(self.head.sample(features, generator), state)

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        if not self.view.is_masked:
            return super().act_randomly(obs, state, generator=generator)
        alike = torch.zeros(len(state), sum(self.head.classes), device=self.device)
        return Acted(self.head.sample(self.view.masked(alike, obs), generator), state)

    def random(self, rows: int, generator: torch.Generator | None) -> Tensor:
        return self.head.random(rows, generator, self.device)

    def candidates(self, obs: Tree, generator: torch.Generator | None) -> Candidates:
        logprobs = self.read(obs)
        return Candidates(None, logprobs.exp(), logprobs)

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.head.to_env(actions)


def make_actor(spaces: Spaces, torso: TorsoOptions, *, noise_correlation: float) -> GaussianActor | CategoricalActor:
    """The stochastic actor of an action space."""
    if isinstance(spaces.action, gym_spaces.Discrete):
        return CategoricalActor(spaces, torso)
    return GaussianActor(spaces, torso, noise_correlation=noise_correlation)
