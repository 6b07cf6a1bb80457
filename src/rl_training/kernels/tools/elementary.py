"""e^x, σ(x) and tanh x in operations that the compiler knows for vectors; `math.exp` is a call for each number."""

from __future__ import annotations

import numpy as np

from rl_training.kernels.tools.compiled import inlined

LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
# Of e^x for |x| < ln 2 / 2, from Cephes' expf.
P0, P1, P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
P3, P4, P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(0.5)
LIMIT, OVERFLOW, ONE, TWO = np.float32(87.0), np.float32(89.0), np.float32(1.0), np.float32(2.0)


@inlined
def _parts(x: np.float32) -> tuple[np.float32, np.float32]:
    """f and 2^n, of which (1 + f) · 2^n is e^x."""
    power = np.floor(x * LOG2_E + P5)
    x = x - power * LN2_HIGH - power * LN2_LOW
    tail = ((((P0 * x + P1) * x + P2) * x + P3) * x + P4) * x + P5
    two_to_power = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
    return tail * x * x + x, two_to_power


@inlined
def exponential(x: np.float32) -> np.float32:
    """e^x for |x| up to 87, and beyond that the same as at 87."""
    fraction, two_to_power = _parts(max(min(x, LIMIT), -LIMIT))
    return (fraction + ONE) * two_to_power


@inlined
def exponential_less_one(x: np.float32) -> np.float32:
    """e^x − 1 without a loss of digits near 0; beyond the range of float32 it is infinite."""
    fraction, two_to_power = _parts(max(min(x, OVERFLOW), -LIMIT))
    return fraction * two_to_power + (two_to_power - ONE)


@inlined
def sigmoid(x: np.float32) -> np.float32:
    return ONE / (ONE + exponential(-x))


@inlined
def tanh(x: np.float32) -> np.float32:
    return TWO * sigmoid(TWO * x) - ONE
