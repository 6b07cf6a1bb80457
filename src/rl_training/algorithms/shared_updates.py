"""Data-parallel updates: every learner holds the whole minibatch and computes the gradient of its share of the rows.

That is torch's DistributedDataParallel by hand. DDP hooks into autograd, which our NumPy gradients do not pass through;
and it averages tensor by tensor what lies here in one flat tensor already. Everything else a learner does (advantages,
shuffles, statistics) each does alike, from the same rollout and the same random numbers, so that the learners stay
equal, and are to rounding what one learner alone would be.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.data.trees import tree_map
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import Evaluated
from rl_training.ops.losses import normalize


class SharedUpdates:
    """Stands in for a `method` of an algorithm that makes one gradient step on a batch of rows, its last argument.

    That is `update` where rows come in any order, and `descend` where the policy has to see sequences first; what it
    said of their rows comes before the batch. A process group must be there.
    """

    def __init__(self, algorithm: Any, method: str) -> None:
        self.algorithm = algorithm
        self.descend_on_share = getattr(algorithm, method)
        # Over the whole minibatch, not over the share, which would have another mean.
        self.normalize_advantages = algorithm.normalize_advantages
        algorithm.normalize_advantages = False
        setattr(algorithm, method, self.descend)

    def descend(self, *arguments: Any, **options: Any) -> UpdateResult:
        *evaluated, batch = arguments
        if self.normalize_advantages:
            batch = {**batch, "advantages": normalize(batch["advantages"])}
        rows, learners = len(batch["advantages"]), dist.get_world_size()
        if rows < learners:
            raise ConfigError(f"learners: a minibatch of {rows} rows cannot be shared by {learners}")
        first, last = (rows * rank // learners for rank in (dist.get_rank(), dist.get_rank() + 1))
        weight = (last - first) / rows
        shares = [Evaluated(*(column[first:last] for column in columns)) for columns in evaluated]
        shares.append(tree_map(lambda leaf: leaf[first:last], batch))
        self.algorithm.optimizer.combine = lambda grad: _sum_over_learners(grad, weight)
        try:
            result = self.descend_on_share(*shares, **options)
        finally:
            self.algorithm.optimizer.combine = None
        return UpdateResult(_mean_metrics(result, weight), result.num_gradient_steps)


def _sum_over_learners(share: Tensor, weight: float) -> None:
    dist.all_reduce(share.mul_(weight))


def _mean_metrics(result: UpdateResult, weight: float) -> dict[str, float | Tensor]:
    """Over all rows, and the same number for every learner: one that stops early does not leave others waiting."""
    values = torch.tensor([float(value) for value in result.metrics.values()], dtype=torch.float64)
    _sum_over_learners(values, weight)
    return dict(zip(result.metrics, values, strict=True))
