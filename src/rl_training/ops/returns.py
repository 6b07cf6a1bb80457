"""Returns and advantages by backward recursion over time.

Every tensor is time-major `[T, B]`; `terminated` and `done` are boolean. `next_values[t]` is the value of the state
that really followed step `t`: at an end, of the final observation. `terminated` cuts the bootstrap, `done` (which
includes truncation) cuts the trace. The results are targets: no gradient flows through any function here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.replaceable import replaceable


class VTrace(NamedTuple):
    """Value targets, policy-gradient advantages and the importance ratios before clipping, each `[T, B]`."""

    targets: Tensor
    advantages: Tensor
    rhos: Tensor


def reverse_scan(decay: Tensor, inputs: Tensor) -> Tensor:
    """y_t = inputs_t + decay_t * y_{t+1} with y_T = 0, over the first axis; detached from the graph."""
    totals = np.array(_array(inputs), order="C")
    _scan(np.broadcast_to(_array(decay), totals.shape), totals)
    return torch.from_numpy(totals).to(inputs.device, inputs.dtype)


def _array(x: Tensor) -> NDArray[Any]:
    # NumPy, because a torch op costs microseconds to launch and a row costs nanoseconds to compute. It has no
    # bfloat16, so half precision is summed in float32, which is also the better sum.
    return x.detach().to("cpu", torch.promote_types(x.dtype, torch.float32)).numpy()


def _scan(decay: NDArray[Any], totals: NDArray[Any]) -> None:
    """`reverse_scan` in place."""
    following: NDArray[Any] | float = 0.0
    # The extra axis makes every row a view into `totals`, also the rows of a single sequence [T].
    for row, weight in zip(totals[::-1, ..., None], decay[::-1, ..., None], strict=True):
        row += weight * following
        following = row


@replaceable
@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al., 2016, eq. 16)."""
    bootstraps = np.where(terminated.cpu().numpy(), np.float32(0.0), _array(next_values))
    totals = _array(rewards) + gamma * bootstraps - _array(values)
    _scan(~done.cpu().numpy() * totals.dtype.type(gamma * gae_lambda), totals)
    return torch.from_numpy(totals).to(rewards.device, rewards.dtype)


@torch.no_grad()
def lambda_returns(rewards: Tensor, next_values: Tensor, *, discounts: Tensor, gae_lambda: float | Tensor) -> Tensor:
    """R_t = r_t + discount_t * ((1 - lambda) V_{t+1} + lambda R_{t+1}), R_T = V_T (Hafner et al., 2023).

    `discounts` are gamma times the probability that the episode goes on.
    """
    bootstraps = discounts * next_values
    inputs = rewards + (1.0 - gae_lambda) * bootstraps
    inputs[-1] = rewards[-1] + bootstraps[-1]
    return reverse_scan(gae_lambda * discounts, inputs)


@torch.no_grad()
def n_step_returns(
    rewards: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    n: int,
) -> Tensor:
    """Up to `n` discounted rewards, then a bootstrap where the n steps, the episode or the rollout stop."""
    bootstraps = next_values.masked_fill(terminated, 0.0)
    returns = rewards + gamma * bootstraps
    for _ in range(min(n, len(rewards)) - 1):
        returns = rewards + gamma * _following(returns, bootstraps, done)
    return returns


@torch.no_grad()
def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float | None = 1.0,
    gae_lambda: float = 1.0,
) -> VTrace:
    """V-trace (Espeholt et al., 2018, eq. 1 and section 4.2); `log_rhos` are target minus behaviour log-probs.

    `gae_lambda` is rlax's: it decays the traces, and an advantage takes the next target and the next value as
    r + γ (λ v_{t+1} + (1 − λ) V_{t+1}) − V. On policy targets and advantages are those of GAE(λ). SEED RL (Espeholt et
    al., 2020) takes the whole next target at any λ.

    Without `pg_rho_bar` the advantages have no ratio, for a loss that has its own.
    """
    rhos = log_rhos.exp()
    bootstraps = next_values.masked_fill(terminated, 0.0)
    deltas = rhos.clamp(max=rho_bar) * (rewards + gamma * bootstraps - values)
    traces = _unless(done, gamma * gae_lambda, like=deltas) * rhos.clamp(max=c_bar)
    targets = values + reverse_scan(traces, deltas)
    following = gae_lambda * _following(targets, bootstraps, done) + (1.0 - gae_lambda) * bootstraps
    advantages = rewards + gamma * following - values
    if pg_rho_bar is not None:
        advantages = rhos.clamp(max=pg_rho_bar) * advantages
    return VTrace(targets, advantages, rhos)


def _unless(ended: Tensor, factor: float, *, like: Tensor) -> Tensor:
    return (~ended).to(like.dtype) * factor


def _following(estimates: Tensor, bootstraps: Tensor, done: Tensor) -> Tensor:
    """The estimate of the next row, or the bootstrap where the next row is another episode or missing."""
    return torch.where(done, bootstraps, torch.cat([estimates[1:], bootstraps[-1:]]))
