"""Rollouts between processes: arrays on the way, and side by side one rollout again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from rl_training.data.rollout import Episode, Rollout
from rl_training.data.trees import to_tensors, tree_map

Fragment = dict[str, Any]  # a rollout's fields as NumPy trees, `policy_version` as the one number that it is

BY_ENV = ("last_obs", "final_obs")
APART = ("final_rows", "policy_version", "episodes", "source")
BY_TIME = tuple(f.name for f in fields(Rollout) if f.name not in BY_ENV + APART)


def to_fragment(rollout: Rollout) -> Fragment:
    """Turns a rollout into arrays that share its memory and can cross the wire."""
    trees = {name: getattr(rollout, name) for name in (*BY_TIME, *BY_ENV, "final_rows")}
    return tree_map(lambda leaf: leaf.cpu().numpy(), trees) | {
        "policy_version": int(rollout.policy_version[0, 0]),
        "episodes": [tuple(episode) for episode in rollout.episodes],
        "source": rollout.source,
    }


def side_by_side(fragments: Sequence[Fragment], device: torch.device | str = "cpu") -> Rollout:
    """One rollout `[T, B₁ + B₂ + …]` with memory of its own; it counts as the first fragment's source's."""
    widths = [fragment["rewards"].shape[1] for fragment in fragments]
    steps = len(fragments[0]["rewards"])
    first_envs = np.cumsum([0, *widths[:-1]])
    final_rows = [f["final_rows"] + np.array([0, first]) for f, first in zip(fragments, first_envs, strict=True)]
    versions = np.repeat([f["policy_version"] for f in fragments], widths)
    joined = {name: _joined(fragments, name, axis=1) for name in BY_TIME}
    joined |= {name: _joined(fragments, name, axis=0) for name in BY_ENV}
    return Rollout(
        **to_tensors(joined, device),
        final_rows=torch.from_numpy(np.concatenate(final_rows)),
        policy_version=torch.from_numpy(versions).expand(steps, -1),
        episodes=tuple(Episode(*episode) for fragment in fragments for episode in fragment["episodes"]),
        source=fragments[0]["source"],
    )


def _joined(fragments: Sequence[Fragment], name: str, *, axis: int) -> Any:
    trees = [fragment[name] for fragment in fragments]
    return tree_map(lambda *leaves: np.concatenate(leaves, axis=axis), *trees)
