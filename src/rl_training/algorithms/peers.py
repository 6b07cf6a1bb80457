"""`Peers`: the learners that share every update. This one is alone; `distributed.learners` has those that are not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import UpdateResult


class Peers:
    """Each learner has a share of a batch's rows. A mean over all rows is that of the shares, each by its weight."""

    def share(self, sizes: NDArray[np.integer]) -> slice:
        """Which of the batch's items are this learner's, given how many rows each item has."""
        return slice(None)

    def mean_(self, of_share: Tensor) -> Tensor:
        """Makes the mean over all rows of the mean over this learner's, in place."""
        return of_share

    def averaged(self, result: UpdateResult) -> UpdateResult:
        """Gives every learner the same metrics: one that stops early does not leave others waiting."""
        return result


ALONE = Peers()
