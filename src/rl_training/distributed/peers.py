"""Data-parallel updates: every learner has the whole rollout and computes the gradient of its share of the rows.

Everything else a learner does (advantages, shuffles, statistics) each does alike, from the same rollout and the same
random numbers, so that the learners stay equal, and are to rounding what one learner alone would be.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.peers import Peers
from rl_training.errors import ConfigError


class RankedPeers(Peers):
    """One of several learners in a process group, which must be there."""

    def __init__(self, rank: int, learners: int) -> None:
        self.rank, self.learners = rank, learners
        self.weight = 1.0 / learners  # of the last share, among all rows

    def share(self, sizes: NDArray[np.integer]) -> slice:
        if len(sizes) < self.learners:
            raise ConfigError(f"learners: a minibatch of {len(sizes)} items cannot be shared by {self.learners}")
        first, last = (len(sizes) * rank // self.learners for rank in (self.rank, self.rank + 1))
        self.weight = float(sizes[first:last].sum() / sizes.sum())
        return slice(first, last)

    def mean_(self, of_share: Tensor) -> Tensor:
        dist.all_reduce(of_share.mul_(self.weight))
        return of_share

    def averaged(self, result: UpdateResult) -> UpdateResult:
        values = torch.tensor([float(value) for value in result.metrics.values()], dtype=torch.float64)
        means = dict(zip(result.metrics, self.mean_(values), strict=True))
        return UpdateResult(means, result.num_gradient_steps)
