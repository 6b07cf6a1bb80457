"""Running statistics as buffers: saved with the policy, moved once per rollout, frozen everywhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.models.grids import is_grid
from rl_training.models.images import is_image


class RunningMeanStd(nn.Module):
    """Mean and variance of all rows seen so far (Chan et al., 1983, parallel update), in double precision.

    With a `memory` the past weighs no more than so many rows: the statistics follow what changes.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = (), memory: float = math.inf) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        if not len(rows):
            return
        rows = rows.double()
        count, mean, var = len(rows), rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + count
        delta = mean - self.mean
        self.var.copy_((self.var * self.count + var * count + delta.square() * self.count * count / total) / total)
        self.mean.add_(delta * count / total)
        self.count.copy_(total.clamp(max=self.memory))

    def scale(self) -> Tensor:
        """One over the deviation, in single precision."""
        return (self.var + 1e-8).rsqrt().float()


class ObsNormalizer(nn.Module):
    """(x − mean) / std clipped to ±`clip` for numbers of a Box; images and discrete observations pass through.

    The first rollout is only clipped; after it the statistics move between rollouts only, so that the policy that is
    updated is the one that acted.
    """

    def __init__(self, space: gym.Space, clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        self.stats: RunningMeanStd | None = None
        self.keys: tuple[str, ...] = ()
        self.parts = nn.ModuleList()
        if isinstance(space, spaces.Dict):
            self.keys = tuple(space.keys())
            self.parts.extend(ObsNormalizer(sub, clip) for sub in space.values())
        elif isinstance(space, spaces.Box) and not (is_image(space) or is_grid(space)):
            self.stats = RunningMeanStd(space.shape)

    def forward(self, obs: Tree) -> Tree:
        if isinstance(obs, Mapping):
            return {key: part(obs[key]) for key, part in zip(self.keys, self.parts, strict=True)}
        if self.stats is None:
            return obs
        return ((obs - self.stats.mean.float()) * self.stats.scale()).clamp_(-self.clip, self.clip)

    def update(self, obs: Tree) -> None:
        """Takes in a batch of raw observations `[N, …]`."""
        if isinstance(obs, Mapping):
            for key, part in zip(self.keys, self.parts, strict=True):
                assert isinstance(part, ObsNormalizer)
                part.update(obs[key])
        elif self.stats is not None:
            self.stats.update(obs)


class RewardNormalizer(nn.Module):
    """Divides rewards by the deviation of their discounted sum (Engstrom et al., 2020), which ends with episodes."""

    def __init__(self, clip: float = 10.0, memory: float = math.inf) -> None:
        super().__init__()
        self.clip = clip
        self.stats = RunningMeanStd(memory=memory)
        self.traces: dict[str, Tensor] = {}

    def forward(
        self, rewards: Tensor, *, done: Tensor, gamma: float, valid: Tensor | None = None, source: int = 0
    ) -> Tensor:
        """Takes in `[T, B]` rewards of one collector, updates the statistics and returns the scaled rewards.

        Rows that are not `valid` are no rewards: they pay 0 between two episodes, where the trace is 0 as well.
        """
        none = torch.zeros(rewards.shape[1], device="cpu")
        trace = self.traces.get(str(source), none).numpy().copy()
        if len(trace) != len(none):  # of a collector with other environments, before the run was resumed
            trace = none.numpy()
        discounted = np.empty(rewards.shape, dtype=np.float32)
        for t, (reward, ended) in enumerate(zip(rewards.cpu().numpy(), done.cpu().numpy(), strict=True)):
            trace = gamma * trace + reward
            discounted[t] = trace
            trace[ended] = 0.0
        self.traces[str(source)] = torch.from_numpy(trace)
        sums = torch.from_numpy(discounted).to(self.stats.mean.device)
        self.stats.update(sums.reshape(-1) if valid is None else sums[valid.to(sums.device)])
        return (rewards * self.stats.scale()).clamp(-self.clip, self.clip)

    def get_extra_state(self) -> dict[str, Tensor]:
        return dict(self.traces)

    def set_extra_state(self, state: Mapping[str, Tensor]) -> None:
        self.traces = dict(state)
