"""EfficientZero's model: MuZero's with a value prefix for rewards, and heads for consistency (Ye et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.models.muzero import (
    MuZeroModel,
    MuZeroOptions,
    Unrolled,
    scale_gradient,
    zeroed,
)


@dataclass(frozen=True)
class EfficientZeroOptions(MuZeroOptions):
    lstm_size: int
    lstm_horizon: int
    projection_size: int


class Memory(NamedTuple):
    """The memory of the value prefix: LSTM state, the prefix so far, and the steps since it was 0."""

    hidden: Tensor  # [B, H]
    cell: Tensor  # [B, H]
    prefix: Tensor  # [B, 1]
    age: Tensor  # [B, 1]


class EfficientZeroModel(MuZeroModel):
    """A latent of the search carries its memory behind it, so that the tree knows nothing of value prefixes."""

    def __init__(self, spaces: Spaces, options: EfficientZeroOptions) -> None:
        super().__init__(spaces, options)
        self.lstm_size, self.lstm_horizon = options.lstm_size, options.lstm_horizon
        self.lstm = nn.LSTMCell(self.dynamics.out_features, options.lstm_size)
        self.reward_head = zeroed(nn.Linear(options.lstm_size, len(self.support)))
        width = options.projection_size
        self.projector = nn.Sequential(
            nn.Linear(self.latent_size, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width)
        )
        self.predictor = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, width))

    def fresh_memory(self, batch: int) -> Memory:
        return Memory(*(self.support.new_zeros(batch, n) for n in (self.lstm_size, self.lstm_size, 1, 1)))

    def accumulate(self, features: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """(logits of the value prefix, the LSTM's state) after a step; `prefix` of the memory is left as it was."""
        restart = memory.age >= self.lstm_horizon
        memory = Memory(*(torch.where(restart, 0.0, part) for part in memory))
        hidden, cell = self.lstm(features, (memory.hidden, memory.cell))
        return self.reward_head(hidden), Memory(hidden, cell, memory.prefix, memory.age + 1.0)

    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """Unrolls as MuZero does; `reward` are logits of the prefixes, the sums of rewards since the last restart."""
        latents, prefixes = [self.represent(obs)], []
        memory = self.fresh_memory(actions.shape[1])
        for chosen in actions:
            latent, features = self.next_latents(scale_gradient(latents[-1], 0.5), chosen)
            logits, memory = self.accumulate(features, memory)
            latents.append(latent)
            prefixes.append(logits)
        stacked = torch.stack(latents)
        policy, value = self.predict(stacked.flatten(0, 1))
        shape = stacked.shape[:2]
        return Unrolled(policy.unflatten(0, shape), value.unflatten(0, shape), torch.stack(prefixes), stacked)

    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        latents, values, policy = super().initial(obs)
        return torch.cat([latents, *self.fresh_memory(latents.shape[0])], dim=-1), values, policy

    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The reward of a step is what it adds to the prefix."""
        current, *parts = latents.split([self.latent_size, self.lstm_size, self.lstm_size, 1, 1], dim=-1)
        following, features = self.next_latents(current, actions)
        logits, memory = self.accumulate(features, Memory(*parts))
        prefix = self.scalar(logits)
        policy, value = self.predict(following)
        packed = torch.cat([following, *memory._replace(prefix=prefix[:, None])], dim=-1)
        return packed, prefix - memory.prefix[:, 0], self.scalar(value), policy

    def project_online(self, latents: Tensor) -> Tensor:
        return self.predictor(self.projector(latents))

    @torch.no_grad()
    def project_observed(self, obs: Tree) -> Tensor:
        """Where an imagined latent should have ended: the real observation's, without a gradient."""
        return self.projector(self.represent(obs))
