"""NumPy forms of the losses of PPO, A2C and IMPALA, with their gradients written by hand.

On a few hundred rows a torch op costs more to launch than to compute. Advantages are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rl_training.kernels.tools.arrays import Floats
from rl_training.ops.losses import ROUNDING


class LossGradient(NamedTuple):
    """The terms of the loss, and its derivatives; the entropy's is the same for every row."""

    metrics: dict[str, Any]
    to_logprobs: Floats
    to_values: Floats
    to_entropy: float


def ppo_gradient(
    logprobs: Floats,
    entropy: Floats,
    values: Floats,
    batch: Mapping[str, Floats],
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    clip_value_loss: bool,
    kl_coef: float = 0.0,
) -> LossGradient:
    """`ppo_loss` of one minibatch with its diagnostics and its gradient."""
    rows, advantages = len(logprobs), batch["advantages"]
    log_ratio = logprobs - batch["behavior_logprobs"]
    moved = np.expm1(log_ratio)
    ratio = moved + np.float32(1.0)
    free = ratio * advantages
    gains = np.minimum(free, ratio.clip(1.0 - clip_coef, 1.0 + clip_coef) * advantages)
    # Where the clip decides the minimum it holds the ratio, and no gradient passes.
    to_logprobs = np.where(gains == free, free, np.float32(0.0)) * np.float32(-1.0 / rows)
    errors = value_errors(values, batch, clip_coef if clip_value_loss else None)
    whole = _with_value_and_entropy(-gains.sum() / rows, to_logprobs, entropy, errors, ent_coef, vf_coef)
    whole.metrics["clip_fraction"] = np.float32(np.count_nonzero(np.abs(moved) > clip_coef) / rows)
    return _with_kl(whole, log_ratio, moved, kl_coef)


def a2c_gradient(
    logprobs: Floats,
    entropy: Floats,
    values: Floats,
    batch: Mapping[str, Floats],
    *,
    ent_coef: float,
    vf_coef: float,
) -> LossGradient:
    """`a2c_loss` of a rollout with its gradient."""
    rows, advantages = len(logprobs), batch["advantages"]
    policy_loss, to_logprobs = -(advantages @ logprobs) / rows, advantages * np.float32(-1.0 / rows)
    errors = value_errors(values, batch, None)
    return _with_value_and_entropy(policy_loss, to_logprobs, entropy, errors, ent_coef, vf_coef)


def impala_gradient(
    logprobs: Floats,
    entropy: Floats,
    values: Floats,
    batch: Mapping[str, Floats],
    *,
    pg_rho_bar: float,
    kl_coef: float,
    **weights: float,
) -> LossGradient:
    """`impala_loss` of rows whose traces are known: A2C's, whose advantages have ratios and a penalty on the KL."""
    log_ratio = logprobs - batch["behavior_logprobs"]
    moved = np.expm1(log_ratio)
    weighted = (moved + np.float32(1.0)).clip(max=np.float32(pg_rho_bar)) * batch["advantages"]
    whole = a2c_gradient(logprobs, entropy, values, {**batch, "advantages": weighted}, **weights)
    return _with_kl(whole, log_ratio, moved, kl_coef)


def _with_kl(whole: LossGradient, log_ratio: Floats, moved: Floats, kl_coef: float) -> LossGradient:
    """Measures the KL and adds the penalty on it."""
    divergence = (moved - log_ratio).sum() / len(moved)
    loss = whole.metrics["loss"] + kl_coef * divergence
    to_logprobs = whole.to_logprobs + np.float32(kl_coef / len(moved)) * moved if kl_coef else whole.to_logprobs
    return whole._replace(metrics=whole.metrics | {"loss": loss, "approx_kl": divergence}, to_logprobs=to_logprobs)


def _with_value_and_entropy(
    policy_loss: Any,
    to_logprobs: Floats,
    entropy: Floats,
    errors: tuple[Floats, Floats],
    ent_coef: float,
    vf_coef: float,
) -> LossGradient:
    """Adds the value error, of which `errors` are `value_errors`, and the entropy bonus to a policy loss."""
    rows, (passing, squares) = len(entropy), errors
    value_loss = 0.5 * squares.sum() / rows
    mean_entropy = entropy.sum() / rows
    metrics = {
        "loss": policy_loss + vf_coef * value_loss - ent_coef * mean_entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
    }
    return LossGradient(metrics, to_logprobs, passing * np.float32(vf_coef / rows), -ent_coef / rows)


def value_errors(values: Floats, batch: Mapping[str, Floats], clip_coef: float | None) -> tuple[Floats, Floats]:
    """The errors whose gradient passes, and the squares that are averaged."""
    errors = values - batch["returns"]
    squares = errors * errors
    if clip_coef is None:
        return errors, squares
    steps = values - batch["values"]
    clipped = np.square(batch["values"] + steps.clip(-clip_coef, clip_coef) - batch["returns"])
    passes = (squares >= clipped) | (np.abs(steps) <= clip_coef)
    return np.where(passes, errors, np.float32(0.0)), np.maximum(squares, clipped)


def normalized(advantages: Floats) -> Floats:
    """Normalises as `ops.losses.normalize` does."""
    rows = len(advantages)
    mean = advantages.sum() / rows
    centered = advantages - mean
    deviation = np.sqrt(centered @ centered / rows)
    if deviation <= ROUNDING * abs(mean):
        return np.zeros_like(advantages)
    centered /= deviation + np.float32(1e-8)
    return centered
