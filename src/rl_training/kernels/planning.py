"""The kernel of the search: all simulations in compiled code, for models of the package's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.kernels.mlp_weights import MLPWeights, PrefixWeights, RecurrentWeights, weights_of
from rl_training.kernels.packing import Packed
from rl_training.kernels.planning_transformer import has_own_transformer, plan_with_transformer
from rl_training.kernels.scalars import expected_scalars
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import Floats, suits_kernels
from rl_training.kernels.tools.compiled import compiled
from rl_training.kernels.tools.elementary import sigmoid, tanh
from rl_training.kernels.tools.matmul import matmul
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.models.mlp import MLP
from rl_training.models.muzero import MuZeroModel
from rl_training.models.scalezero import ScaleZeroModel
from rl_training.search import search
from rl_training.search.decisions import decisions
from rl_training.search.rules import Rule
from rl_training.search.tree import Ints, SearchTree, back_up_all, new_tree, select_all


@compiled
def heads(x: Floats, weight: Floats, bias: Floats, out: Floats) -> None:
    """out = x · weightᵀ + bias for a few outputs, four at a time: their weights stay as they are."""
    outputs = weight.shape[0]
    blocks = outputs - outputs % 4
    for o in range(0, blocks, 4):
        w0, w1, w2, w3 = weight[o], weight[o + 1], weight[o + 2], weight[o + 3]
        for b in range(x.shape[0]):
            row = x[b]
            s0, s1, s2, s3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for i in range(len(row)):
                v = row[i]
                s0 += w0[i] * v
                s1 += w1[i] * v
                s2 += w2[i] * v
                s3 += w3[i] * v
            out[b, o] = s0 + bias[o]
            out[b, o + 1] = s1 + bias[o + 1]
            out[b, o + 2] = s2 + bias[o + 2]
            out[b, o + 3] = s3 + bias[o + 3]
    for o in range(blocks, outputs):
        w0 = weight[o]
        for b in range(x.shape[0]):
            row = x[b]
            s0 = np.float32(0.0)
            for i in range(len(row)):
                s0 += w0[i] * row[i]
            out[b, o] = s0 + bias[o]


@compiled
def to_unit_range(x: Floats, bias: Floats) -> None:
    """Each row of x + bias scaled to [0, 1], in place."""
    for b in range(x.shape[0]):
        row = x[b]
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for i in range(len(row)):
            row[i] += bias[i]
            low, high = min(low, row[i]), max(high, row[i])
        scale = np.float32(1.0) / (high - low + np.float32(1e-5))
        for i in range(len(row)):
            row[i] = (row[i] - low) * scale


@compiled
def next_latents(
    latents: Floats, actions: NDArray[np.int64], weights: RecurrentWeights, hidden: Floats, following: Floats
) -> None:
    """The hidden features of a step and the latents after it, into the last two arguments."""
    matmul(latents, weights.hidden, hidden)
    for b in range(len(latents)):
        chosen = weights.hidden[latents.shape[1] + actions[b]]
        for o in range(len(chosen)):
            hidden[b, o] = max(hidden[b, o] + chosen[o] + weights.hidden_bias[o], np.float32(0.0))
    matmul(hidden, weights.latent, following)
    to_unit_range(following, weights.latent_bias)


@compiled
def scalars(x: Floats, weight: Floats, bias: Floats, answers: Floats) -> None:
    """Computes the scalars that a categorical head stands for."""
    bins = np.empty((len(x), len(bias)), dtype=np.float32)
    heads(x, weight, bias, bins)
    expected_scalars(bins, answers)


@compiled
def predict(latents: Floats, weights: RecurrentWeights, logits: Floats, values: Floats) -> None:
    features = np.empty((len(latents), len(weights.features_bias)), dtype=np.float32)
    matmul(latents, weights.features, features)
    for b in range(len(features)):
        for o in range(features.shape[1]):
            features[b, o] = max(features[b, o] + weights.features_bias[o], np.float32(0.0))
    heads(features, weights.policy, weights.policy_bias, logits)
    scalars(features, weights.value, weights.value_bias, values)


@compiled
def accumulate(
    hidden: Floats, memory: Floats, weights: RecurrentWeights, prefix: PrefixWeights, after: Floats, rewards: Floats
) -> None:
    """A step of the value prefix: its memory `[B, 2U + 2]` afterwards, and the rewards that the step adds."""
    rows, units = len(hidden), len(prefix.of_state)
    state, gates = np.empty((rows, units), dtype=np.float32), np.empty((rows, 4 * units), dtype=np.float32)
    from_state = np.empty_like(gates)
    for b in range(rows):
        for i in range(2 * units + 2):  # begun anew, or as it was
            after[b, i] = memory[b, i] if memory[b, 2 * units + 1] < prefix.horizon else np.float32(0.0)
        state[b] = after[b, :units]
    matmul(hidden, prefix.of_input, gates)
    matmul(state, prefix.of_state, from_state)
    for b in range(rows):
        for i in range(4 * units):
            gates[b, i] += from_state[b, i] + prefix.input_bias[i] + prefix.state_bias[i]
        for i in range(units):
            enter, keep, leave = sigmoid(gates[b, i]), sigmoid(gates[b, units + i]), sigmoid(gates[b, 3 * units + i])
            cell = keep * after[b, units + i] + enter * tanh(gates[b, 2 * units + i])
            after[b, units + i] = cell
            state[b, i] = after[b, i] = leave * tanh(cell)
    scalars(state, weights.reward, weights.reward_bias, rewards)
    for b in range(rows):
        before = after[b, 2 * units]
        after[b, 2 * units] = rewards[b]
        after[b, 2 * units + 1] += np.float32(1.0)
        rewards[b] -= before


@compiled
def recurrent(
    rows: Floats,
    actions: NDArray[np.int64],
    weights: RecurrentWeights,
    prefix: PrefixWeights | None,
    following: Floats,
    logits: Floats,
    rewards: Floats,
    values: Floats,
) -> None:
    """Rows, policy logits, rewards and values after an action, into the last four arguments.

    A row is a latent and, with a prefix, its memory. Its answer does not depend on how many were asked.
    """
    hidden = np.empty((len(rows), len(weights.hidden_bias)), dtype=np.float32)
    if prefix is None:
        next_latents(rows, actions, weights, hidden, following)
        scalars(hidden, weights.reward, weights.reward_bias, rewards)
        predict(following, weights, logits, values)
    else:
        size = len(weights.latent_bias)
        latents = np.empty((len(rows), size), dtype=np.float32)
        next_latents(np.ascontiguousarray(rows[:, :size]), actions, weights, hidden, latents)
        accumulate(hidden, rows[:, size:], weights, prefix, following[:, size:], rewards)
        following[:, :size] = latents
        predict(latents, weights, logits, values)


@compiled
def plan(
    start: Any,
    root_latents: Floats,
    weights: RecurrentWeights,
    prefix: PrefixWeights | None,
    rule: Rule,
    discount: np.float32,
) -> tuple[Ints, Floats, Floats, NDArray[np.int64], Floats]:
    """`decisions` of a search from the roots that `start`, the arguments of `new_tree`, describes."""
    tree = new_tree(*start)
    roots, nodes, _ = tree.nodes.shape
    latents = np.empty((nodes, roots, root_latents.shape[1]), dtype=np.float32)
    latents[0] = root_latents
    run_simulations(tree, latents, weights, prefix, rule, discount)
    return decisions(tree, rule)


@compiled
def run_simulations(
    tree: SearchTree,
    latents: Floats,
    weights: RecurrentWeights,
    prefix: PrefixWeights | None,
    rule: Rule,
    discount: np.float32,
) -> None:
    """Runs as many simulations as `latents` `[N, B, L]` has room for; its first row holds the roots'."""
    nodes, roots, size = latents.shape
    rows = np.empty((roots, size), dtype=np.float32)
    parents, actions = np.empty(roots, dtype=np.int64), np.empty(roots, dtype=np.int64)
    logits = np.empty((roots, tree.gumbel.shape[1]), dtype=np.float32)
    rewards, values = np.empty(roots, dtype=np.float32), np.empty(roots, dtype=np.float32)
    for simulation in range(nodes - 1):
        select_all(tree, simulation, rule, parents, actions)
        for b in range(roots):
            parent = latents[parents[b], b]
            for i in range(size):  # an assignment of rows takes four times as long
                rows[b, i] = parent[i]
        recurrent(rows, actions, weights, prefix, latents[simulation + 1], logits, rewards, values)
        back_up_all(tree, simulation, rewards, values, logits, discount, rule)


def planning_layers(model: MuZeroModel) -> list[nn.Module]:
    """The layers that the search needs, in no order."""
    layers = [*model.dynamics.layers, *model.prediction.layers, model.next_latent]
    return [*layers, model.reward_head, model.policy_head, model.value_head]


def _planning_tensors(model: MuZeroModel) -> list[Tensor]:
    layers = planning_layers(model)
    if isinstance(model, EfficientZeroModel):
        layers.append(model.lstm)
    return [parameter for layer in layers for parameter in layer.parameters()]


mlp_weights: Packed[MuZeroModel, MLPWeights] = Packed(weights_of, _planning_tensors)


def plan_with_mlps(
    model: MuZeroModel, root_latents: Tensor, start: tuple[Any, ...], rule: Rule, discount: np.float32
) -> Any:
    return plan(start, root_latents.numpy(), *mlp_weights(model), rule, discount)


def has_own_mlps(model: Any) -> bool:
    """Tells whether nobody has replaced a layer of the model."""
    return mlp_weights.knows(model) or (
        type(model.dynamics) is MLP
        and type(model.prediction) is MLP
        and all(type(layer) is nn.Linear for layer in planning_layers(model))
        and (type(model) is MuZeroModel or type(model.lstm) is nn.LSTMCell)
    )


# How to plan with a model of exactly this type, and whether its layers are its own.
PLANNERS: dict[type, tuple[Callable[..., Any], Callable[[Any], bool]]] = {
    MuZeroModel: (plan_with_mlps, has_own_mlps),
    EfficientZeroModel: (plan_with_mlps, has_own_mlps),
    ScaleZeroModel: (plan_with_transformer, has_own_transformer),
}


def own_model_on_the_cpu(model: Any, root_latents: Tensor, *rest: Any) -> bool:
    """Exactly MuZeroModel, EfficientZeroModel or ScaleZeroModel, with their own layers, in float32 on the CPU."""
    return type(model) in PLANNERS and suits_kernels(root_latents) and PLANNERS[type(model)][1](model)


@replaces(search.simulate, when=own_model_on_the_cpu, tolerance=1e-5)
def simulate(model: Any, root_latents: Tensor, start: tuple[Any, ...], rule: Rule, discount: np.float32) -> Any:
    return PLANNERS[type(model)][0](model, root_latents, start, rule, discount)
