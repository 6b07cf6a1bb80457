"""Sampled actions (Hubert et al., 2021, arXiv:2104.06303): a search over a few samples of the policy at every node.

They are for spaces whose actions cannot all be tried: a Box, MultiDiscrete, or a large Discrete. The search's priors
over samples of the policy itself are even; the policy learns to make those samples likelier that the search prefers.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.heads import ActionHead, CategoricalHead, GaussianHead, make_head

DEFAULT_COUNT = 16  # samples at a node, where no number is given
LOWEST_LOG_STD = -2.0  # of [−1, 1]: samples that are all alike would leave the search nothing to choose from


def number_of_samples(space: gym.Space, asked: int | None) -> int | None:
    """How many actions a node samples; None where it tries them all, which Discrete ones do unless asked."""
    if isinstance(space, spaces.Discrete):
        return asked
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete)):
        return asked or DEFAULT_COUNT
    raise ConfigError(f"tree search needs Discrete, MultiDiscrete or Box actions, got {space}")


def encoded_size(space: gym.Space) -> int:
    """The numbers of an action that the dynamics see."""
    if isinstance(space, spaces.Box):
        return int(torch.Size(space.shape).numel())
    return int(space.n) if isinstance(space, spaces.Discrete) else int(space.nvec.sum())  # type: ignore[attr-defined]


class SampledActions(nn.Module):
    """The head of such a policy, what the dynamics see of an action, and the samples of a node."""

    def __init__(self, space: gym.Space, in_features: int, count: int) -> None:
        super().__init__()
        self.head: ActionHead = make_head(space, in_features, state_dependent_std=isinstance(space, spaces.Box))
        self.count = count
        self.shape = self.head.action_shape
        self.width = int(torch.Size(self.shape).numel())  # numbers that an action is kept as

    def forward(self, features: Tensor) -> Tensor:
        """Features → the parameters of the policy's distribution."""
        dist = self.head(features)
        if not isinstance(self.head, GaussianHead):
            return dist
        mean, log_std = dist.chunk(2, dim=-1)
        # Beyond the bounds all samples are executed alike: a mean that got there would learn nothing and stay.
        mean = mean.tanh() if self.head.scale.is_bounded else mean
        return torch.cat([mean, log_std.clamp_min(LOWEST_LOG_STD)], dim=-1)

    def encoded(self, actions: Tensor) -> Tensor:
        """Actions `[N, …]` as the dynamics see them: as they are executed, or one-hot."""
        rows = actions.reshape(len(actions), self.width)
        if isinstance(self.head, GaussianHead):
            return rows.clamp(-1.0, 1.0) if self.head.scale.is_bounded else rows
        assert isinstance(self.head, CategoricalHead)
        return torch.cat([F.one_hot(rows[:, i].long(), n).float() for i, n in enumerate(self.head.classes)], dim=-1)

    def draw(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        """`count` samples of each row: `[N, K, …]`."""
        drawn = self.head.sample(dist.repeat_interleave(self.count, dim=0), generator)
        return drawn.unflatten(0, (len(dist), self.count))

    def explore(self, dist: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Samples for a root, a quarter of them drawn evenly from the space, and the logits that make up for it.

        A sample of β = ¾ π + ¼ u counts for π / β (Hubert et al., 2021, eq. 6): what the policy would never have
        sampled gets a chance, and a prior by how unlikely it was.
        """
        candidates, foreign = self.draw(dist, generator), self.count // 4
        if not foreign:
            return candidates, dist.new_zeros(candidates.shape[:2])
        candidates[:, -foreign:] = self.draw_evenly(len(dist), generator, dist.device)[:, -foreign:]
        share = foreign / self.count
        odds = self.log_even - self.log_probs(dist, candidates)
        own, even = odds.new_tensor(math.log(1.0 - share)), math.log(share) + odds
        return candidates, -torch.logaddexp(own, even)

    @property
    def log_even(self) -> float:
        """The log-probability of an action that is drawn evenly from the space."""
        if isinstance(self.head, CategoricalHead):
            return -sum(math.log(n) for n in self.head.classes)
        return -self.width * math.log(2.0)

    def greedy(self, candidates: NDArray[Any], policy: NDArray[Any], chosen: NDArray[Any]) -> NDArray[Any]:
        """Acts without chance: in a Box by the mean of the candidates `[N, K, …]`, by a search's policy `[N, K]`.

        The chosen candidate has the largest of several values that all have errors; in their mean these cancel.
        """
        if not isinstance(self.head, GaussianHead):
            return chosen
        executed = candidates.clip(-1.0, 1.0) if self.head.scale.is_bounded else candidates
        return np.einsum("nk,nk...->n...", policy, executed).astype(candidates.dtype)

    def draw_evenly(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Samples `[N, K, …]` of the space, not of the policy."""
        return self.head.random(rows * self.count, generator, device).unflatten(0, (rows, self.count))

    def log_probs(self, dist: Tensor, candidates: Tensor) -> Tensor:
        """The log-probabilities `[…, K]` of candidates `[…, K, *shape]` by distributions `[…, P]`."""
        lead, count = dist.shape[:-1], candidates.shape[dist.dim() - 1]
        rows = dist.flatten(0, -2).repeat_interleave(count, dim=0)
        return self.head.log_probs(rows, candidates.reshape(len(rows), *self.shape)).reshape(*lead, count)


class SampledSearch:
    """A model as the search takes it: its actions are the numbers of samples, which a latent carries behind it."""

    def __init__(self, model: nn.Module, sampled: SampledActions, generator: torch.Generator) -> None:
        self.model, self.sampled, self.generator = model, sampled, generator

    def packed(self, latents: Tensor, candidates: Tensor) -> Tensor:
        return torch.cat([latents, candidates.flatten(1).to(latents.dtype)], dim=-1)

    def recurrent(self, rows: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        sampled = self.sampled
        behind = sampled.count * sampled.width
        latents, candidates = rows[:, :-behind], rows[:, -behind:].unflatten(1, (sampled.count, sampled.width))
        actions = candidates[torch.arange(len(rows), device=rows.device), chosen]
        following, rewards, values, dist = self.model.recurrent(latents, actions)  # type: ignore[operator]
        logits = values.new_zeros(len(rows), sampled.count)
        return self.packed(following, sampled.draw(dist, self.generator)), rewards, values, logits
