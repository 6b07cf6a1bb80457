"""Functions over a `Session`: train, load, evaluate, predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.trees import batch_of_one, space_map, to_observations, tree_leaves, tree_map
from rl_training.envs.masks import ACTION_MASK, has_choice, is_masked, joined
from rl_training.envs.sources import EnvSource
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError, StoppedBySignal
from rl_training.runtime.callbacks import Callback, configured_callbacks
from rl_training.runtime.evaluation import Evaluation, score_text
from rl_training.runtime.loop import run_training
from rl_training.runtime.opening import LoadedPolicy, load_session
from rl_training.runtime.session import Session
from rl_training.runtime.stopping import stoppable


@dataclass(frozen=True, repr=False)
class TrainResult:
    """The outcome of a run; the evaluation is greedy, of the final policy."""

    global_step: int
    run_dir: Path | None = None
    evaluation: Evaluation | None = None
    stop_reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        stopped = f" ({self.stop_reason})" if self.stop_reason else ""
        where = "" if self.run_dir is None else f"; run: {self.run_dir}"
        return f"{self.global_step:,} steps{stopped}: {score_text(self.summary())}{where}"

    __repr__ = __str__  # what a notebook shows

    def summary(self) -> dict[str, Any]:
        scores = self.evaluation.summary() if self.evaluation else {}
        return {
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "global_step": self.global_step,
            "return_mean": scores.get("return_mean"),
            "return_min": scores.get("return_min"),
            "return_std": scores.get("return_std"),
            "episodes": scores.get("episodes", 0),
            "stop_reason": self.stop_reason,
            **{key: score for key, score in scores.items() if key == "success_rate" or key.startswith("return_mean/")},
        }


class _LastRow(Callback):
    def __init__(self) -> None:
        self.row: dict[str, Any] = {}

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self.row = dict(row)


def train_session(session: Session, *, callbacks: Sequence[Callback] = (), run_dir: Path | None = None) -> TrainResult:
    """Trains to the config's budget, then evaluates; a signal ends it with a checkpoint and `StoppedBySignal`."""
    last = _LastRow()
    session.stop_reason, session.was_interrupted = None, False
    with stoppable() as stopper, stopper.asking(session.interrupt):
        evaluation = run_training(session, [*configured_callbacks(session.config, callbacks), *callbacks, last])
    if stopper.received:
        raise StoppedBySignal(stopper.received[0])
    return TrainResult(session.progress.global_step, run_dir, evaluation, session.stop_reason, last.row)


def evaluate_checkpoint(
    path: Path | str,
    *,
    episodes: int = 20,
    which: str | int = "latest",
    deterministic: bool = True,
    seed: int | None = None,
    env: EnvSource | None = None,
    trust: bool = False,
    **changes: Any,
) -> Evaluation:
    """Plays whole episodes with a checkpoint's policy."""
    session = load_session(path, which=which, env=env, trust=trust, **changes)
    try:
        return session.evaluate(episodes, deterministic=deterministic, seed=seed)
    finally:
        session.close()


def predict(
    session: Session | LoadedPolicy,
    obs: Any,
    *,
    state: Any = None,
    deterministic: bool = True,
    action_mask: Any = None,
) -> tuple[Any, Any]:
    """(action, state) for one observation or a batch; give the state back with the next observation.

    A policy that was trained with action masks needs the mask that holds now, unless the observation has it.
    """
    rows, batched = checked_rows(session.spaces, obs, action_mask)
    actions, after = act_on(session, rows, state=state, deterministic=deterministic)
    return (actions if batched else actions[0]), after


def checked_rows(spaces: Spaces, obs: Any, action_mask: Any = None) -> tuple[Any, bool]:
    """(observations with the batch as first axis, whether they came as one); a ConfigError says what does not fit."""
    obs = _with_mask(obs, action_mask, spaces)
    batched = _is_batch(obs, spaces.observation)
    return _checked_rows(obs if batched else batch_of_one(obs), spaces.observation), batched


@torch.inference_mode()
def act_on(
    session: Session | LoadedPolicy, rows: Any, *, state: Any = None, deterministic: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(actions, states after them) for observations that were checked."""
    policy = session.policy
    count = len(tree_leaves(rows)[0])
    carried = policy.initial_state(count) if state is None else torch.as_tensor(state, device=policy.device)
    with session.kernels():
        acted = policy.act(to_observations(rows, policy.device), carried, deterministic=deterministic)
    return policy.env_actions(acted.actions.cpu().numpy()), acted.state.cpu().numpy()


def _with_mask(obs: Any, mask: Any, spaces: Spaces) -> Any:
    """The observation as the policy takes it, with its mask if the policy knows masks."""
    if not is_masked(spaces):
        if mask is not None:
            raise ConfigError("the policy was trained without action masks; leave action_mask out")
        return obs
    if mask is None:
        if not isinstance(obs, Mapping) or ACTION_MASK not in obs:
            raise ConfigError("the policy was trained with action masks; pass the one that holds now as action_mask")
        mask = obs[ACTION_MASK]
    parts = mask if isinstance(mask, tuple) else (mask,)
    ones = np.concatenate([np.asarray(part) != 0 for part in parts], axis=-1).astype(np.int8)
    for row in ones.reshape(-1, ones.shape[-1]):
        if not has_choice(row, spaces.action):
            raise ConfigError(f"action_mask allows no action: {row.tolist()}")
    return joined(obs, ones)


def _is_batch(obs: Any, space: Any) -> bool:
    leaves = space_map(lambda leaf: leaf, space)
    if not _has_form(obs, leaves):
        form = f"a mapping with the keys {sorted(leaves)}" if isinstance(leaves, Mapping) else "an array of numbers"
        raise ConfigError(f"an observation must be {form}")
    return tree_leaves(tree_map(lambda sub, leaf: np.ndim(leaf) > len(sub.shape or ()), leaves, obs))[0]


def _has_form(obs: Any, leaves: Any) -> bool:
    """Whether the observation has mappings where its space has, with the same keys."""
    if not (isinstance(obs, Mapping) and isinstance(leaves, Mapping)):
        return isinstance(obs, Mapping) == isinstance(leaves, Mapping)
    return obs.keys() == leaves.keys() and all(_has_form(obs[key], leaves[key]) for key in leaves)


def _checked_rows(rows: Any, space: Any) -> Any:
    def check(leaf: Any, sub: Any) -> Any:
        array = np.asarray(leaf)
        if array.shape[1:] != (sub.shape or ()):
            raise ConfigError(f"an observation has shape {array.shape[1:]}, the policy expects {sub.shape or ()}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError("an observation has numbers that are not finite")
        return array.astype(sub.dtype, copy=False)

    return tree_map(check, rows, space_map(lambda leaf: leaf, space))
