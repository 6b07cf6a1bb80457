"""The recurrent inference of ScaleZero in compiled code: two tokens of every row through the transformer.

Rows are what the search keeps of nodes, as `models.scalezero.Node` packs them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.kernels.packing import Packed
from rl_training.kernels.scalars import expected_scalars
from rl_training.kernels.scalezero_weights import SHARED, Affine, ScaleZeroWeights, TransformerWeights, weights_of
from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import exponential, sigmoid
from rl_training.kernels.tools.matmul import matmul
from rl_training.models.masking import ILLEGAL
from rl_training.models.scalezero import ScaleZeroModel, TaskHead
from rl_training.models.transformer import AdaptedLinear, Attention, Block, Experts, FeedForward, Transformer
from rl_training.search.rules import Rule
from rl_training.search.search import grow_trees

NORM_EPSILON = np.float32(1e-5)
Ints = NDArray[np.int64]


class CompiledScaleZero:
    """Answers as `ScaleZeroModel.recurrent` does."""

    def __init__(self, weights: ScaleZeroWeights) -> None:
        self.weights = weights

    def recurrent(self, rows: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        following, logits = torch.empty_like(rows), rows.new_empty(len(rows), self.weights.legal.shape[1])
        rewards, values = rows.new_empty(len(rows)), rows.new_empty(len(rows))
        into = (part.numpy() for part in (following, rewards, values, logits))
        recurrent(rows.numpy(), actions.numpy(), self.weights, *into)
        return following, rewards, values, logits


OWN_LAYERS = {
    Transformer,
    Block,
    Attention,
    Experts,
    FeedForward,
    AdaptedLinear,
    TaskHead,
    nn.Linear,
    nn.LayerNorm,
    nn.ModuleList,
    nn.ParameterList,
}
scalezero_weights: Packed[ScaleZeroModel, ScaleZeroWeights] = Packed(
    weights_of, lambda model: [*model.parameters(), *model.buffers()]
)


def has_own_transformer(model: ScaleZeroModel) -> bool:
    """Tells whether nobody has replaced a layer of the model."""
    if scalezero_weights.knows(model):
        return True
    parts = (model.transformer, model.next_latent, model.policy_head, model.value_head, model.reward_head)
    return all(type(module) in OWN_LAYERS for part in parts for module in part.modules())


def plan_with_transformer(
    model: ScaleZeroModel, root_latents: Tensor, start: tuple[Any, ...], rule: Rule, discount: np.float32
) -> Any:
    """The plain simulations, with a model whose answers are compiled."""
    return grow_trees(CompiledScaleZero(scalezero_weights(model)), root_latents, start, rule, discount)


@compiled
def layer_norm(x: Floats, out: Floats) -> None:
    """Rows of zero mean and unit variance."""
    width = x.shape[1]
    for b in range(len(x)):
        row, total, squares = x[b], np.float32(0.0), np.float32(0.0)
        for i in range(width):
            total += row[i]
        mean = total / np.float32(width)
        for i in range(width):
            squares += (row[i] - mean) * (row[i] - mean)
        scale = np.float32(1.0) / math.sqrt(squares / np.float32(width) + NORM_EPSILON)
        for i in range(width):
            out[b, i] = (row[i] - mean) * scale


@compiled
def scaled_norm(x: Floats, norm: Floats, out: Floats) -> None:
    layer_norm(x, out)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            out[b, i] = out[b, i] * norm[0, i] + norm[1, i]


@compiled
def attend(pairs: Floats, memory: Floats, places: Ints, out: Floats) -> None:
    """Queries, keys and values `[B, 3D]` of a token: it sees the memory `[B, 2, H, S, D/H]` up to its place."""
    _, _, heads, length, size = memory.shape
    width = heads * size
    factor, chances = np.float32(1.0 / math.sqrt(size)), np.empty(length, dtype=np.float32)
    for b in range(len(pairs)):
        seen = places[b] + 1
        for h in range(heads):
            start = h * size
            for i in range(size):
                memory[b, 0, h, places[b], i] = pairs[b, width + start + i]
                memory[b, 1, h, places[b], i] = pairs[b, 2 * width + start + i]
                out[b, start + i] = np.float32(0.0)
            top, total = np.float32(-np.inf), np.float32(0.0)
            for s in range(seen):
                score = np.float32(0.0)
                for i in range(size):
                    score += pairs[b, start + i] * memory[b, 0, h, s, i]
                chances[s] = score * factor
                top = max(top, chances[s])
            for s in range(seen):
                chances[s] = exponential(chances[s] - top)
                total += chances[s]
            for s in range(seen):
                share = chances[s] / total
                for i in range(size):
                    out[b, start + i] += share * memory[b, 1, h, s, i]


@compiled
def add_expert(
    x: Floats, rows: Ints, gates: Floats, layer: int, index: int, weights: TransformerWeights, out: Floats
) -> None:
    """out[rows] += gates · expert(x[rows])."""
    up_bias, down_bias = weights.up.bias[layer, index], weights.down.bias[layer, index]
    count, width = len(rows), x.shape[1]
    own, hidden = np.empty((count, width), dtype=np.float32), np.empty((count, len(up_bias)), dtype=np.float32)
    for n in range(count):
        for i in range(width):
            own[n, i] = x[rows[n], i]
    matmul(own, weights.up.weight[layer, index], hidden)
    for n in range(count):
        for i in range(len(up_bias)):
            value = hidden[n, i] + up_bias[i]
            hidden[n, i] = value * sigmoid(value)
    matmul(hidden, weights.down.weight[layer, index], own)
    for n in range(count):
        for i in range(width):
            out[rows[n], i] += gates[n] * (own[n, i] + down_bias[i])


@compiled
def add_experts(x: Floats, layer: int, weights: TransformerWeights, out: Floats) -> None:
    """out += the shared expert and, by their probability, those that each row's router finds likeliest."""
    count, experts = len(x), weights.router.shape[2]
    add_expert(x, np.arange(count), np.ones(count, dtype=np.float32), layer, SHARED, weights, out)
    chances = np.empty((count, experts), dtype=np.float32)
    matmul(x, weights.router[layer], chances)
    gates = np.zeros((experts, count), dtype=np.float32)
    for b in range(count):
        row, top, total = chances[b], np.float32(-np.inf), np.float32(0.0)
        for e in range(experts):
            top = max(top, row[e])
        for e in range(experts):
            row[e] = exponential(row[e] - top)
            total += row[e]
        for _ in range(weights.experts_per_token):
            best = row.argmax()
            gates[best, b] = row[best] / total
            row[best] = np.float32(-1.0)
    for e in range(experts):
        rows = np.nonzero(gates[e] > np.float32(0.0))[0]
        if len(rows) > 0:
            add_expert(x, rows, gates[e][rows], layer, SHARED + 1 + e, weights, out)


@compiled
def read(x: Floats, memory: Floats, places: Ints, weights: TransformerWeights, out: Floats) -> None:
    """`Transformer.step`: one token of each row; its keys and values go into the memory `[B, L, 2, H, S, D/H]`."""
    count, width = x.shape
    normed, mixed = np.empty((count, width), dtype=np.float32), np.empty((count, width), dtype=np.float32)
    pairs = np.empty((count, 3 * width), dtype=np.float32)
    for b in range(count):
        for i in range(width):
            x[b, i] += weights.positions[places[b], i]
    for layer in range(len(weights.router)):
        scaled_norm(x, weights.attention_norm[layer], normed)
        matmul(normed, weights.inputs.weight[layer], pairs)
        for b in range(count):
            for i in range(3 * width):
                pairs[b, i] += weights.inputs.bias[layer, i]
        attend(pairs, memory[:, layer], places, normed)
        matmul(normed, weights.output.weight[layer], mixed)
        for b in range(count):
            for i in range(width):
                x[b, i] += mixed[b, i] + weights.output.bias[layer, i]
        scaled_norm(x, weights.experts_norm[layer], normed)
        add_experts(normed, layer, weights, x)
    scaled_norm(x, weights.norm, out)


@compiled
def task_heads(features: Floats, tasks: Ints, heads: Affine, out: Floats) -> None:
    for b in range(len(features)):
        for o in range(out.shape[1]):
            total = np.float32(0.0)
            for i in range(features.shape[1]):
                total += features[b, i] * heads.weight[tasks[b], o, i]
            out[b, o] = total + heads.bias[tasks[b], o]


@compiled
def recurrent(
    rows: Floats,
    actions: Ints,
    weights: ScaleZeroWeights,
    following: Floats,
    rewards: Floats,
    values: Floats,
    logits: Floats,
) -> None:
    """Rows, rewards, values and policy logits after an action, into the last four arguments."""
    network, count, width = weights.transformer, len(rows), weights.task_tokens.shape[1]
    heads, length = network.num_heads, len(network.positions)
    memory = np.empty((count, len(network.router), 2, heads, length, width // heads), dtype=np.float32)
    memory.reshape(count, -1)[:] = rows[:, width + 2 :]
    tasks, places = rows[:, width].astype(np.int64), rows[:, width + 1].astype(np.int64)
    x, features = np.empty((count, width), dtype=np.float32), np.empty((count, width), dtype=np.float32)
    bins = np.empty((count, weights.reward.bias.shape[1]), dtype=np.float32)
    for b in range(count):
        x[b] = weights.action_tokens[tasks[b], actions[b]] + weights.task_tokens[tasks[b]]
    read(x, memory, places, network, features)
    task_heads(features, tasks, weights.reward, bins)
    expected_scalars(bins, rewards)
    latents = np.empty((count, width), dtype=np.float32)
    matmul(features, weights.next_latent.weight, latents)
    for b in range(count):
        for i in range(width):
            latents[b, i] += weights.next_latent.bias[i] + rows[b, i]
    layer_norm(latents, x)
    following[:, :width] = x
    following[:, width], following[:, width + 1] = tasks, places + 2
    for b in range(count):
        x[b] += weights.task_tokens[tasks[b]]
    read(x, memory, places + 1, network, features)
    following[:, width + 2 :] = memory.reshape(count, -1)
    task_heads(features, tasks, weights.value, bins)
    expected_scalars(bins, values)
    task_heads(features, tasks, weights.policy, logits)
    for b in range(count):
        for a in range(logits.shape[1]):
            if not weights.legal[tasks[b], a]:
                logits[b, a] = np.float32(ILLEGAL)
