"""The whole search in compiled code, for models whose recurrent inference is an MLP of known shape.

The arithmetic is that of `models.muzero.MuZeroModel.recurrent`, on the same weights; a test holds them to 1e-5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.compiled import compiled
from rl_training.models.muzero import RecurrentWeights
from rl_training.search.rules import Rule
from rl_training.search.tree import (
    Floats,
    Ints,
    Tree,
    back_up,
    decisions,
    new_tree,
    select,
    set_policy,
)


@compiled
def linear(x: Floats, weight: Floats, bias: Floats, out: Floats, inputs: int, relu: bool) -> None:
    """out = x[:, :inputs] · weight[:, :inputs]ᵀ + bias, four outputs at a time.

    Rows of `x` are never summed together or in another order: an answer does not depend on how many were asked.
    """
    floor = np.float32(0.0) if relu else np.float32(-np.inf)
    outputs = weight.shape[0]
    blocks = outputs - outputs % 4
    for o in range(0, blocks, 4):
        w0, w1, w2, w3 = weight[o], weight[o + 1], weight[o + 2], weight[o + 3]
        for b in range(x.shape[0]):
            row = x[b]
            s0, s1, s2, s3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for i in range(inputs):
                v = row[i]
                s0 += w0[i] * v
                s1 += w1[i] * v
                s2 += w2[i] * v
                s3 += w3[i] * v
            out[b, o] = max(s0 + bias[o], floor)
            out[b, o + 1] = max(s1 + bias[o + 1], floor)
            out[b, o + 2] = max(s2 + bias[o + 2], floor)
            out[b, o + 3] = max(s3 + bias[o + 3], floor)
    for o in range(blocks, outputs):
        w0 = weight[o]
        for b in range(x.shape[0]):
            row = x[b]
            s0 = np.float32(0.0)
            for i in range(inputs):
                s0 += w0[i] * row[i]
            out[b, o] = max(s0 + bias[o], floor)


@compiled
def expected_scalar(logits: Floats) -> np.float32:
    """The scalar behind a categorical over −S … S: signed parabolic of its mean, exactly 0 if it is symmetric."""
    last, top, total, mean = len(logits) - 1, np.float32(-np.inf), np.float32(0.0), np.float32(0.0)
    for i in range(last + 1):
        top = max(top, logits[i])
    half = last // 2
    for i in range(half):
        down, up = math.exp(logits[i] - top), math.exp(logits[last - i] - top)
        total += down + up
        mean += (up - down) * np.float32(half - i)
    total += math.exp(logits[half] - top)
    x = mean / total
    slope = np.float32(1.002)
    u = np.float32(2.0) * x / (slope + math.sqrt(slope * slope + np.float32(0.004) * abs(x)))
    return u * (abs(u) + np.float32(2.0))


@compiled
def min_max_rows(x: Floats) -> None:
    """Each row scaled to [0, 1], in place."""
    for b in range(x.shape[0]):
        row = x[b]
        low, high = row[0], row[0]
        for i in range(len(row)):
            low, high = min(low, row[i]), max(high, row[i])
        scale = np.float32(1.0) / (high - low + np.float32(1e-5))
        for i in range(len(row)):
            row[i] = (row[i] - low) * scale


@compiled
def recurrent(
    latents: Floats,
    actions: NDArray[np.int64],
    weights: RecurrentWeights,
    following: Floats,
    logits: Floats,
    rewards: Floats,
    values: Floats,
) -> None:
    """Latents, policy logits, rewards and values after an action, into the last four arguments."""
    size = latents.shape[1]
    hidden = np.empty((len(latents), weights.hidden_bias.shape[0]), dtype=np.float32)
    linear(latents, weights.hidden, weights.hidden_bias, hidden, size, False)
    for b in range(len(latents)):
        column = size + actions[b]
        for o in range(hidden.shape[1]):
            hidden[b, o] = max(hidden[b, o] + weights.hidden[o, column], np.float32(0.0))
    linear(hidden, weights.latent, weights.latent_bias, following, hidden.shape[1], False)
    min_max_rows(following)
    bins = np.empty((len(latents), weights.reward_bias.shape[0]), dtype=np.float32)
    linear(hidden, weights.reward, weights.reward_bias, bins, hidden.shape[1], False)
    for b in range(len(latents)):
        rewards[b] = expected_scalar(bins[b])
    features = np.empty((len(latents), weights.features_bias.shape[0]), dtype=np.float32)
    linear(following, weights.features, weights.features_bias, features, size, True)
    linear(features, weights.policy, weights.policy_bias, logits, features.shape[1], False)
    bins = np.empty((len(latents), weights.value_bias.shape[0]), dtype=np.float32)
    linear(features, weights.value, weights.value_bias, bins, features.shape[1], False)
    for b in range(len(latents)):
        values[b] = expected_scalar(bins[b])


@compiled
def plan(
    start: Any, root_latents: Floats, weights: RecurrentWeights, rule: Rule, discount: float
) -> tuple[Ints, Floats, Floats, NDArray[np.int64], Floats]:
    """`decisions` of a search from the roots that `start`, the arguments of `new_tree`, describes."""
    tree = new_tree(*start)
    roots, nodes = tree.value.shape
    latents = np.empty((roots, nodes, root_latents.shape[1]), dtype=np.float32)
    latents[:, 0] = root_latents
    run_simulations(tree, latents, weights, rule, discount)
    return decisions(tree, rule)


@compiled
def run_simulations(tree: Tree, latents: Floats, weights: RecurrentWeights, rule: Rule, discount: float) -> None:
    """As many simulations as `latents` `[B, N, L]` has room for; its first row holds the roots'."""
    roots, nodes, size = latents.shape
    parents = np.empty((roots, size), dtype=np.float32)
    following = np.empty((roots, size), dtype=np.float32)
    actions = np.empty(roots, dtype=np.int64)
    logits = np.empty((roots, tree.prior.shape[2]), dtype=np.float32)
    rewards, values = np.empty(roots, dtype=np.float32), np.empty(roots, dtype=np.float32)
    for simulation in range(nodes - 1):
        for b in range(roots):
            select(tree, b, simulation, rule)
            last = tree.depth[b] - 1
            actions[b] = tree.path_action[b, last]
            parents[b] = latents[b, tree.path[b, last]]
        recurrent(parents, actions, weights, following, logits, rewards, values)
        for b in range(roots):
            if back_up(tree, b, simulation + 1, rewards[b], values[b], discount):
                set_policy(tree, b, simulation + 1, logits[b])
                latents[b, simulation + 1] = following[b]


@compiled
def repeat_recurrent(
    times: int,
    latents: Floats,
    actions: NDArray[np.int64],
    weights: RecurrentWeights,
    following: Floats,
    logits: Floats,
    rewards: Floats,
    values: Floats,
) -> None:
    """`recurrent` again and again, for measuring."""
    for _ in range(times):
        recurrent(latents, actions, weights, following, logits, rewards, values)
