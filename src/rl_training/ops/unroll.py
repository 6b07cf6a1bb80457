"""Targets along an unroll, from windows of replayed rows. Arrays are `[W, B]`, time first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Flags = NDArray[np.bool_]


ENDS = ("terminated", "truncated", "is_first", "is_last")  # columns that say where episodes begin and end


class UnrollTargets(NamedTuple):
    """The targets of K actions and K + 1 states. Past a termination all are 0 and known, past a time limit unknown."""

    values: Floats  # [K + 1, B]
    rewards: Floats  # [K, B]
    has_state: Flags  # [K + 1, B] the state was seen: it has a policy
    has_value: Flags  # [K + 1, B] seen, or absorbing
    has_reward: Flags  # [K, B]


def same_episode(window: Mapping[str, Flags], written: Flags) -> Flags:
    """Which rows of windows `[L, N]` follow the first without an end, a restart or the newest row in between."""
    goes_on = written.copy()
    goes_on[1:] &= ~(window["terminated"] | window["truncated"])[:-1] & ~window["is_first"][1:] & ~window["is_last"][1:]
    return np.logical_and.accumulate(goes_on, axis=0)


def n_step_rewards(
    window: Mapping[str, NDArray], written: Flags, *, n_steps: int, gamma: float
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """(Σ γ^i r_i, what the state after it counts for, how many steps away that is), from windows `[n + 1, B]`.

    A sum ends with its episode, or where the successor of a row is not known yet. The state after m steps counts for
    γ^m, and for 0 after a termination.
    """
    real = same_episode(window, written)[:-1]
    steps = (real & written[1:] & ~window["is_first"][1:]).sum(0)
    powers = np.where(np.arange(n_steps)[:, None] < steps, gamma ** np.arange(n_steps)[:, None], 0.0)
    rewards = (powers * window["rewards"][:-1]).sum(0)
    terminated = window["terminated"][np.maximum(steps, 1) - 1, np.arange(len(steps))]
    return rewards.astype(np.float32), np.where(terminated, 0.0, gamma**steps).astype(np.float32), steps


def target_ends(
    window: Mapping[str, Flags], written: Flags, *, unroll_steps: int, n_steps: int | NDArray[np.integer]
) -> NDArray[np.int64]:
    """[K + 1, B]: the states in which the n-step values of a window end; after an episode, the one that ended it."""
    length = same_episode(window, written).sum(0)
    return np.minimum(np.arange(unroll_steps + 1)[:, None] + n_steps, length)


def unroll_targets(
    window: Mapping[str, NDArray],
    written: Flags,
    *,
    unroll_steps: int,
    n_steps: int | NDArray[np.integer],
    gamma: float,
) -> UnrollTargets:
    """n-step values: z_k = Σ γ^i r_{k+i} + γ^m v(s_{k+m}), where m is n or what the episode has left.

    `values` are of the rows' own states, `next_values` of those that really followed. A termination has nothing to
    bootstrap from, a time limit and the edge of the buffer have. The window has K + n rows; `n_steps` may differ from
    column to column, and be 0.
    """
    real = same_episode(window, written)
    length = real.sum(0)
    columns = np.arange(real.shape[1])
    absorbing = window["terminated"][length - 1, columns]
    rewards = np.where(real, window["rewards"], 0.0)
    bootstraps = np.where(window["terminated"], 0.0, window["next_values"])
    states = np.arange(unroll_steps + 1)[:, None]
    stops = target_ends(window, written, unroll_steps=unroll_steps, n_steps=n_steps)
    values = np.zeros((unroll_steps + 1, real.shape[1]), dtype=np.float32)
    for i in range(int(np.max(n_steps))):
        at = np.minimum(states + i, len(rewards) - 1)
        values += gamma**i * np.where(states + i < stops, rewards[at, columns], 0.0)
    has_state = states < length
    reached = gamma ** (stops - states) * bootstraps[np.maximum(stops - 1, 0), columns]
    reached = np.where(stops > states, reached, window["values"][: unroll_steps + 1])
    values = np.where(has_state, values + reached, 0.0).astype(np.float32)
    known = has_state | absorbing
    return UnrollTargets(values, rewards[:unroll_steps].astype(np.float32), has_state, known, known[:-1])


def observed_states(window: Mapping[str, Flags], written: Flags) -> tuple[NDArray[np.int64], Flags]:
    """(rows, known): where the observations of the K + 1 states of a window are, and which of them are known at all.

    The observation that ends an episode is one of them; after a termination it stays, after a time limit nothing is
    known.
    """
    real = same_episode(window, written)
    is_final = np.zeros_like(real)
    is_final[1:] = real[:-1] & ~real[1:] & written[1:] & window["is_last"][1:]
    seen = real | is_final
    newest = seen.sum(0) - 1
    steps = np.arange(len(real))[:, None]
    stays = is_final.any(0) & window["terminated"][newest - 1, np.arange(real.shape[1])]
    return np.minimum(steps, newest), seen | (stays & (steps > newest))


def value_prefixes(rewards: Floats, horizon: int) -> Floats:
    """Undiscounted sums of rewards `[K, B]`, beginning anew every `horizon` steps (Ye et al., 2021)."""
    return np.concatenate([rewards[k : k + horizon].cumsum(0) for k in range(0, len(rewards), horizon)])
