"""Copies of ScaleZero's weights as arrays, for compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from rl_training.kernels.tools.arrays import Floats, as_array
from rl_training.models.transformer import AdaptedLinear, Transformer

SHARED = 0  # the place of the shared expert among the others


class Affine(NamedTuple):
    """Weights by input `[…, I, O]` (of heads by output) and biases `[…, O]`, of several layers side by side."""

    weight: Floats
    bias: Floats


class TransformerWeights(NamedTuple):
    """The weights of `L` layers; the shared expert is the first of `E`."""

    positions: Floats  # [S, D]
    attention_norm: Floats  # [L, 2, D]: scale and shift
    inputs: Affine  # [L, D, 3D]
    output: Affine  # [L, D, D]
    experts_norm: Floats  # [L, 2, D]
    router: Floats  # [L, D, E - 1]
    up: Affine  # [L, E, D, H]
    down: Affine  # [L, E, H, D]
    norm: Floats  # [2, D]
    num_heads: int
    experts_per_token: int


class ScaleZeroWeights(NamedTuple):
    transformer: TransformerWeights
    task_tokens: Floats  # [T, D]
    action_tokens: Floats  # [T, A, D]
    next_latent: Affine  # [D, D]
    reward: Affine  # [T, bins, D]
    value: Affine  # [T, bins, D]
    policy: Affine  # [T, A, D]
    legal: NDArray[np.bool_]  # [T, A]


def weights_of(model: Any) -> ScaleZeroWeights:
    return ScaleZeroWeights(
        transformer=transformer_weights(model.transformer, model.experts_per_token),
        task_tokens=as_array(model.task_tokens),
        action_tokens=as_array(model.action_tokens),
        next_latent=_affine(model.next_latent),
        reward=_heads(model.reward_head),
        value=_heads(model.value_head),
        policy=_heads(model.policy_head),
        legal=model.legal.numpy(),
    )


def transformer_weights(network: Transformer, experts_per_token: int) -> TransformerWeights:
    blocks: list[Any] = list(network.blocks)
    experts = [[block.experts.shared, *block.experts.experts] for block in blocks]
    return TransformerWeights(
        positions=as_array(network.positions),
        attention_norm=np.stack([_scale_and_shift(block.attention_norm) for block in blocks]),
        inputs=_stacked([_affine(block.attention.inputs) for block in blocks]),
        output=_stacked([_affine(block.attention.output) for block in blocks]),
        experts_norm=np.stack([_scale_and_shift(block.experts_norm) for block in blocks]),
        router=np.stack([as_array(block.experts.router.weight.t()) for block in blocks]),
        up=_stacked([_stacked([_affine(expert.up) for expert in layer]) for layer in experts]),
        down=_stacked([_stacked([_affine(expert.down) for expert in layer]) for layer in experts]),
        norm=_scale_and_shift(network.norm),
        num_heads=network.memory_shape[2],
        experts_per_token=experts_per_token,
    )


def _affine(layer: nn.Linear) -> Affine:
    weight = layer.adapted() if isinstance(layer, AdaptedLinear) else layer.weight
    return Affine(as_array(weight.t()), as_array(layer.bias))


def _stacked(layers: list[Affine]) -> Affine:
    return Affine(np.stack([layer.weight for layer in layers]), np.stack([layer.bias for layer in layers]))


def _heads(head: Any) -> Affine:
    weight, bias = as_array(head.heads.weight), as_array(head.heads.bias)
    return Affine(weight.reshape(head.tasks, -1, weight.shape[1]), bias.reshape(head.tasks, -1))


def _scale_and_shift(norm: nn.LayerNorm) -> Floats:
    return np.stack([as_array(norm.weight), as_array(norm.bias)])
