"""Networks as a user writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import Acted, Evaluated


class OwnTorso(nn.Module):
    """Two layers over whatever numbers an observation has."""

    def __init__(self, space: Any, width: int = 16) -> None:
        super().__init__()
        self.out_features = width
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(space.shape)), width), nn.GELU())

    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs.float())


def own_torso(space: Any, **kwargs: Any) -> nn.Module:
    """A factory."""
    return OwnTorso(space, **kwargs)


class WrongWidth(OwnTorso):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.out_features = 5


class NoWidth(nn.Linear):
    def __init__(self, space: Any) -> None:
        super().__init__(4, 4)
        del self.out_features


class Raising(nn.Module):
    def __init__(self, space: Any) -> None:
        raise KeyError("a weight is missing")


class OwnPolicy(nn.Module):
    """The whole protocol, for Discrete actions and vectors, in one linear layer."""

    def __init__(self, spaces: Spaces, bias: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(spaces.observation.shape[0], int(spaces.action.n) + 1)
        nn.init.constant_(self.linear.bias, bias)

    @property
    def device(self) -> torch.device:
        return self.linear.weight.device

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0)

    def _outputs(self, obs: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        outputs = self.linear(obs.float())
        return torch.distributions.Categorical(logits=outputs[:, :-1]), outputs[:, -1]

    def act(
        self, obs: Tensor, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        dist, values = self._outputs(obs)
        drawn = torch.multinomial(dist.probs, 1, generator=generator)[:, 0]
        actions = dist.probs.argmax(-1) if deterministic else drawn
        return Acted(actions, state, dist.log_prob(actions), values)

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> Evaluated:
        dist, values = self._outputs(obs)
        return Evaluated(dist.log_prob(actions), dist.entropy(), values, dist.logits)

    def values(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        return self._outputs(obs)[1]

    def env_actions(self, actions: Any) -> Any:
        return actions

    def update_statistics(self, obs: Any) -> None:
        """None are kept."""
