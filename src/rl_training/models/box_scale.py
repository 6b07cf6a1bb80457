"""The way between what a policy samples and the actions of a Box."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

AS_GOOD_AS_INFINITE = 1e30  # some environments write the greatest float where they mean no bound


class BoxScale:
    """Axes that are bounded on both sides are acted in as [−1, 1]; others are only clipped.

    An action is `first` + (sample + 1) · `half`, clipped to the bounds.
    """

    def __init__(self, space: spaces.Box) -> None:
        self.shape, self.dtype = space.shape, space.dtype
        self.size, self._is_whole = int(np.prod(space.shape)), np.issubdtype(space.dtype, np.integer)
        self.low, self.high = (bound.astype(np.result_type(bound, np.float32)) for bound in (space.low, space.high))
        self.has_low, self.has_high = self.low > -AS_GOOD_AS_INFINITE, self.high < AS_GOOD_AS_INFINITE
        bounded = self.has_low & self.has_high
        self.half = np.where(bounded, 0.5 * (np.where(bounded, self.high, 0) - np.where(bounded, self.low, 0)), 1)
        self.first = np.where(bounded, self.low, -1)  # what −1 stands for
        self.is_scaled, self.is_bounded = bool(bounded.any()), bool(bounded.all())

    def move_inside(self) -> None:
        """Acts in axes without two bounds as far as [−1, 1] goes, moved inside of the bound that they have."""
        self.first = np.where(self.has_low, self.first, np.minimum(self.high, 1.0) - 2.0)
        self.first = np.where(self.has_low & ~self.has_high, np.maximum(self.low, -1.0), self.first)
        self.is_scaled = True

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        if self.is_scaled:
            actions = self.first + (actions + 1.0) * self.half
        if self._is_whole:
            actions = np.rint(actions)
        inside = np.minimum(np.maximum(actions, self.low), self.high)  # which is quicker than `clip`
        return inside.astype(self.dtype, copy=False)

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        if self.is_scaled:
            actions = (actions - self.first) / self.half - 1.0
        return actions.astype(np.float32)
