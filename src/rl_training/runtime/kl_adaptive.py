"""`KLAdaptive`: a learning rate that follows the KL divergence which its updates cause, between two bounds.

As in rsl_rl (Rudin et al., 2022, arXiv:2109.11978) and Sample Factory (Petrenko et al., 2020, arXiv:2006.11751), but
once a rollout: what is logged is then what all of its updates used.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 2.0  # the KL may be this many times more or less than its target before the rate moves


@dataclass(frozen=True)
class KLAdaptive:
    """Begins at `start`; a rollout whose updates moved the policy too far or too little moves it by `factor`."""

    start: float
    target: float
    low: float
    high: float
    factor: float
    breakpoints: tuple[float, ...] = (0.0,)

    def __call__(self, step: float) -> float:
        return self.start

    def next_value(self, value: float, kl: float) -> float:
        """The value after a rollout whose updates measured `kl` on average."""
        if kl > self.target * TOLERANCE:
            value /= self.factor
        elif kl < self.target / TOLERANCE:
            value *= self.factor
        return self.within(value)

    def within(self, value: float) -> float:
        return min(max(value, self.low), self.high)
