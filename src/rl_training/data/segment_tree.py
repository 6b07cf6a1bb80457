"""`SegmentTree`: a number for each of many places, with their sum or maximum, and draws by them, in O(log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


class SegmentTree:
    """A heap of partial results: node 1 is of all places, nodes 2i and 2i + 1 are of the halves of node i's."""

    def __init__(self, places: int, combine: np.ufunc) -> None:
        self._first_leaf = 1 << places.bit_length()  # more leaves than places: there is one after the last
        self._combine = combine
        self._nodes = np.zeros(2 * self._first_leaf)

    @property
    def total(self) -> float:
        """The sum of all numbers, or the greatest."""
        return float(self._nodes[1])

    def __getitem__(self, places: Places) -> NDArray[np.float64]:
        return self._nodes[places + self._first_leaf]

    def __setitem__(self, places: Places, numbers: NDArray[np.floating] | float) -> None:
        nodes = places + self._first_leaf
        self._nodes[nodes] = numbers
        while nodes[0] > 1:
            nodes = nodes >> 1
            self._nodes[nodes] = self._combine(self._nodes[2 * nodes], self._nodes[2 * nodes + 1])

    def before(self, places: Places) -> NDArray[np.float64]:
        """For each place, which may be the one after the last, the sum of all numbers before it."""
        nodes, sums = places + self._first_leaf, np.zeros(len(places))
        while nodes[0] > 1:
            sums += np.where(nodes % 2 == 1, self._nodes[nodes - 1], 0.0)
            nodes = nodes >> 1
        return sums

    def find(self, mass: NDArray[np.float64]) -> Places:
        """For each mass in [0, total): the place at which the sum of all numbers up to it exceeds the mass.

        Rounding never leads to a place whose number is 0.
        """
        nodes, mass = np.ones(len(mass), dtype=np.int64), mass.copy()
        while nodes[0] < self._first_leaf:
            left = 2 * nodes
            below = self._nodes[left]
            right = (mass >= below) & (self._nodes[left + 1] > 0.0)
            mass -= np.where(right, below, 0.0)
            nodes = left + right
        return nodes - self._first_leaf
