"""Q-networks, a number (or a distribution) for each action, and the policy that is greedy in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.masks import ACTION_MASK
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import Acted
from rl_training.models.masking import ObsView
from rl_training.models.mlp import orthogonal
from rl_training.models.noisy import NoisyLinear
from rl_training.models.returns import ReturnOptions, make_returns
from rl_training.models.torsos import TorsoOptions, make_torso
from rl_training.replaceable import replaceable


@dataclass(frozen=True)
class QOptions:
    torso: TorsoOptions
    returns: ReturnOptions
    dueling: bool
    noisy: bool


class QNetwork(nn.Module):
    """Observations → `[N, A, Z]`; dueling: what the state is worth, and what each action adds (Wang et al., 2016)."""

    def __init__(self, spaces: Spaces, options: QOptions) -> None:
        super().__init__()
        if not isinstance(spaces.action, gym_spaces.Discrete):
            raise ConfigError(f"DQN needs a Discrete action space, got {spaces.action}; SAC and TD3 take a Box")
        self.num_actions = int(spaces.action.n)
        self.view = ObsView(spaces)
        self.torso = make_torso(self.view.space, options.torso)
        self.returns = make_returns(options.returns)
        self.advantages = self._head(self.num_actions * self.returns.size, noisy=options.noisy)
        self.value = self._head(self.returns.size, noisy=options.noisy) if options.dueling else None

    def _head(self, out_features: int, *, noisy: bool) -> nn.Linear | NoisyLinear:
        width = self.torso.out_features
        return NoisyLinear(width, out_features) if noisy else orthogonal(nn.Linear(width, out_features), 1.0)

    def forward(self, obs: Tree) -> Tensor:
        features = self.torso(self.view.seen(obs))
        outputs = self.advantages(features).unflatten(-1, (self.num_actions, self.returns.size))
        if self.value is None:
            return outputs
        return self.value(features).unsqueeze(-2) + outputs - outputs.mean(-2, keepdim=True)

    def q_values(self, obs: Tree) -> Tensor:
        """`[N, A]`: the expected return of each legal action."""
        return self.legal_means(self(obs), obs)

    def legal_means(self, outputs: Tensor, obs: Tree) -> Tensor:
        """The expected returns that `outputs` stand for, with as little as can be for actions that are not legal."""
        return self.view.masked(self.returns.mean(outputs), obs)

    def draw_noise(self, generator: torch.Generator | None) -> None:
        for layer in self._noisy_layers():
            layer.draw_noise(generator)

    def quiet(self) -> None:
        for layer in self._noisy_layers():
            layer.quiet()

    def _noisy_layers(self) -> list[NoisyLinear]:
        return [layer for layer in (self.advantages, self.value) if isinstance(layer, NoisyLinear)]


class QPolicy(nn.Module):
    """The best action, or with probability `epsilon` any. It reads its parameters whenever it acts.

    Where actions at random may persist (Dabney et al., 2021, arXiv:2006.01782), the state holds the number of the last
    one, counted from 1, and 0 behind an action that was chosen.
    """

    def __init__(self, network: QNetwork, params: Any, *, first_action: int) -> None:
        """`first_action` is the number that the environment's first action has."""
        super().__init__()
        self.network = network
        self.params = params
        self.first_action = first_action

    @property
    def device(self) -> torch.device:
        return self.network.advantages.weight.device

    def apply_controls(self, values: Mapping[str, float]) -> None:
        self.params.move(values)

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1 if self.params.epsilon_persistence else 0, device=self.device)

    @replaceable
    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        if deterministic:
            self.network.quiet()
            return Acted(self.network.q_values(obs).argmax(-1), state)
        self.network.draw_noise(generator)
        return self.explored(self.network.q_values(obs).argmax(-1), obs, state, generator)

    def explored(self, best: Tensor, obs: Tree, state: Tensor, generator: torch.Generator | None) -> Acted:
        """The best actions, some of them replaced by any."""
        is_random = torch.rand(best.shape[0], generator=generator, device=best.device) < self.params.epsilon
        actions = torch.where(is_random, self._random(obs, best.shape[0], generator), best)
        return self._persisting(actions, is_random, obs, state, generator)

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        actions = self._random(obs, len(state), generator)
        return self._persisting(actions, torch.ones_like(actions, dtype=torch.bool), obs, state, generator)

    def _persisting(
        self, actions: Tensor, is_random: Tensor, obs: Tree, state: Tensor, generator: torch.Generator | None
    ) -> Acted:
        """The actions, with those at random of the step before in place of some, where they are still legal."""
        if not self.params.epsilon_persistence:
            return Acted(actions, state)
        last = state[:, 0].long() - 1
        stays = torch.rand(len(last), generator=generator, device=last.device) < self.params.epsilon_persistence
        stays &= last >= 0
        if self.network.view.is_masked:
            stays &= obs[ACTION_MASK].gather(-1, last.clamp(min=0)[:, None])[:, 0] != 0
        actions = torch.where(stays, last, actions)
        return Acted(actions, ((actions + 1) * (stays | is_random)).to(state.dtype)[:, None])

    def _random(self, obs: Tree, rows: int, generator: torch.Generator | None) -> Tensor:
        if self.network.view.is_masked:
            legal = (obs[ACTION_MASK] != 0).float()
            return torch.multinomial(legal, 1, generator=generator)[:, 0]
        return torch.randint(self.network.num_actions, (rows,), generator=generator, device=self.device)

    @torch.no_grad()
    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        """The expected return of the best action."""
        self.network.quiet()
        return self.network.q_values(obs).amax(-1)

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions + self.first_action
