"""SAC's and TD3's samples, losses and gradients by the networks' outputs, compiled. Importing this loads numba."""

from __future__ import annotations

import math

import numpy as np

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled
from rl_training.models.heads import HALF_LOG_2PI
from rl_training.models.squashed import LOG_STD_HIGH, LOG_STD_LOW

ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
LOW, HIGH = np.float32(LOG_STD_LOW), np.float32(LOG_STD_HIGH)
LOG_2, NORMALIZER = np.float32(np.log(2.0)), np.float32(HALF_LOG_2PI)


@compiled
def squashed(outputs: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Actions `[N, size]`, the tanh of a Gaussian, and their log-densities in [−1, 1]; `noise` is `[N, size]`."""
    rows, size = noise.shape
    actions, logprobs = np.empty_like(noise), np.zeros(rows, dtype=np.float32)
    for row in range(rows):
        for k in range(size):
            log_std = min(max(outputs[size + k, row], LOW), HIGH)
            raw = outputs[k, row] + np.float32(math.exp(log_std)) * noise[row, k]
            softplus = max(-TWO * raw, ZERO) + np.float32(math.log1p(math.exp(-abs(TWO * raw))))
            slope = TWO * (LOG_2 - raw - softplus)
            logprobs[row] -= HALF * noise[row, k] * noise[row, k] + log_std + NORMALIZER + slope
            actions[row, k] = math.tanh(raw)
    return actions, logprobs


@compiled
def squashed_gradient(
    outputs: Floats, noise: Floats, actions: Floats, to_actions: Floats, to_logprob: np.float32
) -> Floats:
    """The outputs' gradients: log-densities change with the raw sample by 2 tanh, and with log_std by −1."""
    gradient, (rows, size) = np.empty_like(outputs), noise.shape
    for row in range(rows):
        for k in range(size):
            action, log_std = actions[row, k], outputs[size + k, row]
            to_raw = to_actions[row, k] * (ONE - action * action) + to_logprob * TWO * action
            gradient[k, row] = to_raw
            inside = LOW <= log_std <= HIGH
            to_log_std = to_raw * np.float32(math.exp(log_std)) * noise[row, k] - to_logprob
            gradient[size + k, row] = to_log_std if inside else ZERO
    return gradient


@compiled
def point_gradient(actions: Floats, to_actions: Floats) -> Floats:
    """The gradient `[size, N]` of what a tanh made actions of."""
    rows, size = actions.shape
    gradient = np.empty((size, rows), dtype=np.float32)
    for row in range(rows):
        for k in range(size):
            gradient[k, row] = to_actions[row, k] * (ONE - actions[row, k] * actions[row, k])
    return gradient


@compiled
def squared_errors(values: Floats, targets: Floats, weights: Floats) -> tuple[Floats, Floats, float, float, float]:
    """The loss's gradients by the values `[E, N]`, each row's distance; the loss, and the means of both."""
    members, rows = values.shape
    gradients, distances = np.empty_like(values), np.zeros(rows, dtype=np.float32)
    loss, total, distance = 0.0, 0.0, 0.0
    for member in range(members):
        for row in range(rows):
            error = values[member, row] - targets[row]
            gradients[member, row] = error * weights[row] / np.float32(rows)
            distances[row] += abs(error) / np.float32(members)
            loss += HALF * weights[row] * error * error
            total += values[member, row]
            distance += abs(error)
    count = members * rows
    return gradients, distances, loss / rows, total / count, distance / count
