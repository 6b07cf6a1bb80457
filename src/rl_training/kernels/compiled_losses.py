"""PPO's and A2C's losses and their gradients by what the networks put out, compiled, for the two most usual heads.

Each function writes the gradients and returns the means that are measured. Importing this loads numba.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import exponential, exponential_less_one
from rl_training.models.heads import HALF_LOG_2PI
from rl_training.ops.losses import ROUNDING

Means = tuple[np.float32, np.float32, np.float32]
Limits = tuple[float, float, float]  # clip_coef, pg_rho_bar and kl_coef; of the first two one below 0 is none
Actions = NDArray[np.int64]
ZERO, ONE, HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@compiled
def usable(advantages: Floats, normalizes: bool) -> Floats:
    """Normalises as `ops.losses.normalize` does, if that is wanted."""
    if not normalizes:
        return advantages
    rows, total, squares = np.float32(len(advantages)), ZERO, ZERO
    for row in range(len(advantages)):
        total += advantages[row]
    mean = total / rows
    centered = advantages - mean
    for row in range(len(centered)):
        squares += centered[row] * centered[row]
    deviation = np.sqrt(squares / rows)
    scale = ZERO if deviation <= np.float32(ROUNDING) * abs(mean) else ONE / (deviation + np.float32(1e-8))
    for row in range(len(centered)):
        centered[row] *= scale
    return centered


@compiled
def surrogate(logprobs: Floats, old_logprobs: Floats, advantages: Floats, limits: Limits) -> Means:
    """Overwrites the log-probabilities with the gradient by them; returns the means of gain, KL and clipping.

    Without a clip it is the policy gradient, weighted by bounded ratios or not at all.
    """
    share = ONE / np.float32(len(logprobs))
    clip, rho_bar, kl_coef = np.float32(limits[0]), np.float32(limits[1]), np.float32(limits[2])
    gains, divergence, clipped = ZERO, ZERO, ZERO
    for row in range(len(logprobs)):
        log_ratio = logprobs[row] - old_logprobs[row]
        moved = exponential_less_one(log_ratio)
        divergence += moved - log_ratio
        ratio, pull = moved + ONE, kl_coef * moved if kl_coef > ZERO else ZERO
        if clip < ZERO:
            weighted = advantages[row] if rho_bar < ZERO else min(ratio, rho_bar) * advantages[row]
            gains += logprobs[row] * weighted
            logprobs[row] = share * (pull - weighted)
            continue
        free = ratio * advantages[row]
        held = min(max(ratio, ONE - clip), ONE + clip) * advantages[row]
        gains += min(free, held)
        clipped += ONE if abs(moved) > clip else ZERO
        # Where the clip decides the minimum it holds the ratio, and no gradient passes.
        logprobs[row] = share * (pull - (free if free <= held else ZERO))
    return gains * share, divergence * share, clipped * share


@compiled
def value_error(
    values: Floats, old_values: Floats, returns: Floats, vf_coef: float, clip_coef: float, to_values: Floats
) -> np.float32:
    """Writes the gradient by the values and returns the loss; steps are clipped unless `clip_coef` is below 0."""
    clip, share, total = np.float32(clip_coef), ONE / np.float32(len(values)), ZERO
    weight = np.float32(vf_coef) * share
    for row in range(len(values)):
        error = values[row] - returns[row]
        square, passing = error * error, error
        if clip >= ZERO:
            step = values[row] - old_values[row]
            held = old_values[row] + min(max(step, -clip), clip) - returns[row]
            passing = error if square >= held * held or abs(step) <= clip else ZERO
            square = max(square, held * held)
        total += square
        to_values[row] = weight * passing
    return HALF * total * share


@compiled
def gaussian(
    outputs: Floats,
    actions: Floats,
    log_std: Floats,
    to_log_std: Floats,
    old_logprobs: Floats,
    advantages: Floats,
    limits: Limits,
    ent_coef: float,
) -> tuple[Floats, Means, np.float32]:
    """Returns the gradient by the outputs `[K, N]`, the means of `surrogate`, and the entropy."""
    columns, rows = outputs.shape
    z, inverse = np.empty_like(outputs), np.exp(-log_std)
    constant = np.float32(columns * HALF_LOG_2PI) + log_std.sum()
    logprobs = np.full(rows, -constant)
    for k in range(columns):
        for row in range(rows):
            z[k, row] = (actions[row, k] - outputs[k, row]) * inverse[k]
            logprobs[row] -= HALF * z[k, row] * z[k, row]
    means = surrogate(logprobs, old_logprobs, advantages, limits)
    for k in range(columns):
        total = ZERO
        for row in range(rows):
            pulled = logprobs[row] * z[k, row]
            total += pulled * z[k, row] - logprobs[row]
            z[k, row] = pulled * inverse[k]
        to_log_std[k] = total - np.float32(ent_coef)
    return z, means, constant + HALF * np.float32(columns)


@compiled
def categorical(
    outputs: Floats, actions: Actions, old_logprobs: Floats, advantages: Floats, limits: Limits, ent_coef: float
) -> tuple[Floats, Means, np.float32]:
    """Returns the same for one choice among K."""
    columns, rows = outputs.shape
    dist, probs = np.empty_like(outputs), np.empty_like(outputs)
    highest, sums, entropies = outputs[0].copy(), np.zeros_like(advantages), np.zeros_like(advantages)
    for k in range(1, columns):
        for row in range(rows):
            highest[row] = max(highest[row], outputs[k, row])
    for k in range(columns):
        for row in range(rows):
            probs[k, row] = exponential(outputs[k, row] - highest[row])
            sums[row] += probs[k, row]
    for row in range(rows):
        highest[row] += np.float32(math.log(sums[row]))
        sums[row] = ONE / sums[row]
    for k in range(columns):
        for row in range(rows):
            dist[k, row] = outputs[k, row] - highest[row]
            probs[k, row] *= sums[row]
            entropies[row] -= probs[k, row] * dist[k, row]
    weights = np.empty_like(advantages)
    for row in range(rows):
        weights[row] = dist[actions[row], row]
    means = surrogate(weights, old_logprobs, advantages, limits)
    to_entropy = np.float32(-ent_coef) / np.float32(rows)
    for k in range(columns):
        for row in range(rows):
            dist[k, row] = -probs[k, row] * (weights[row] + to_entropy * (dist[k, row] + entropies[row]))
    for row in range(rows):
        dist[actions[row], row] += weights[row]
    return dist, means, entropies.sum() / np.float32(rows)
