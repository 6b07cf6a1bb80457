"""CartPole's dynamics, bit for bit as Gymnasium computes them. Importing this loads numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import exactly_compiled

Doubles = NDArray[np.float64]
Truths = NDArray[np.bool_]


@exactly_compiled
def advance(
    before: Doubles,
    cosines: Doubles,
    sines: Doubles,
    actions: NDArray[np.int64],
    starts: Doubles,
    ended: Truths,
    forces: tuple[float, float, float, float, float, float, float],
    limits: tuple[float, float, int],
    steps: NDArray[np.int32],
    after: Doubles,
    ends: Truths,
    obs: Floats,
    rewards: Floats,
    terminated: Truths,
    truncated: Truths,
) -> None:
    """Steps the states `[4, B]`; environments whose episodes had `ended` begin at the next column of `starts`."""
    push, gravity, pole_mass, total_mass, length, pole_moment, tau = forces
    farthest, steepest, longest = limits
    begun = 0
    for b in range(len(ended)):
        if ended[b]:
            after[:, b] = starts[:, begun]
            begun += 1
            steps[b] = 0
            rewards[b] = 0.0
            terminated[b] = truncated[b] = False
        else:
            x, speed, angle, spin = before[:, b]
            force = push if actions[b] > 0 else -push
            pushed = (force + pole_moment * (spin * spin) * sines[b]) / total_mass
            inertia = length * (4.0 / 3.0 - pole_mass * (cosines[b] * cosines[b]) / total_mass)
            turning = (gravity * sines[b] - cosines[b] * pushed) / inertia
            driving = pushed - pole_moment * turning * cosines[b] / total_mass
            after[0, b], after[1, b] = x + tau * speed, speed + tau * driving
            after[2, b], after[3, b] = angle + tau * spin, spin + tau * turning
            steps[b] += 1
            rewards[b] = 1.0
            terminated[b] = abs(after[0, b]) > farthest or abs(after[2, b]) > steepest
            truncated[b] = steps[b] >= longest
        ends[b] = terminated[b] or truncated[b]
        for part in range(4):
            obs[b, part] = after[part, b]
