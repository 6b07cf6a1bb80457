"""Promises that every algorithm keeps, checked for one: for authors of algorithms outside of the package.

check_algorithm(make_config("mine/cartpole", total_timesteps=512), folder=tmp_path)
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.envs.sources import EnvSource
from rl_training.errors import RLTrainingError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.manager import resume_run, train_run
from rl_training.runtime.opening import load_session
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import predict

NOT_COMPARED = ("seconds", "cpu_seconds", "output_dir", "signature")  # time, and where the run lies


class BrokenPromise(RLTrainingError):
    """An algorithm does not behave as every algorithm does."""


def check_algorithm(config: TrainConfig, *, folder: Path, env: EnvSource | None = None) -> None:
    """Trains a small config several times and raises `BrokenPromise` at the first promise that is not kept.

    They are: every control is logged; one seed is one run and another seed another; a run that was stopped and resumed
    equals one that was not; a checkpoint evaluates and predicts.
    """
    half = max(config.total_timesteps // 2, 1)
    config = config.changed(output_dir=str(folder), log_interval=1, checkpoint_interval=half)
    whole = _trained(config, env)
    _promise(not differences(whole, _trained(config, env)), "two runs with one seed are equal")
    other = _trained(config.changed(seed=config.seed + 1), env)
    weights = [state["learner"]["algorithm"]["policy"] for state in (whole, other)]
    _promise(bool(differences(*weights)), "another seed gives other weights")
    run_dir = train_run(config, env=env, callbacks=[_StopAtCheckpoint(), _ControlsAreLogged()]).run_dir
    assert run_dir is not None
    resume_run(run_dir, env=env)
    differing = differences(whole, load_checkpoint(run_dir))
    _promise(not differing, f"a resumed run equals one that was never stopped (differing: {', '.join(differing[:5])})")
    with closing(load_session(run_dir, env=env)) as session:
        _evaluates_and_predicts(session)


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of a state tree by its path, but for wall-clock time and where the run lies."""
    if isinstance(tree, dict):
        parts = [leaves(value, f"{path}/{key}") for key, value in tree.items() if key not in NOT_COMPARED]
    elif isinstance(tree, list):
        parts = [leaves(value, f"{path}/{index}") for index, value in enumerate(tree)]
    else:
        return {path: tree}
    return {name: leaf for part in parts for name, leaf in part.items()}


def differences(first: Any, second: Any) -> list[str]:
    """The paths at which two state trees differ in any bit."""
    a, b = leaves(first), leaves(second)
    return [
        name for name in a.keys() | b.keys() if name not in a or name not in b or not np.array_equal(a[name], b[name])
    ]


class _StopAtCheckpoint(Callback):
    """Ends the run with its first checkpoint, as a kill right after it would."""

    def on_checkpoint(self, session: Session) -> None:
        session.request_stop("the check of resuming asked")


class _ControlsAreLogged(Callback):
    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        missing = session.controls.resolve(0).keys() - row.keys()
        _promise(not missing, f"every control is logged (missing: {', '.join(sorted(missing))})")


def _trained(config: TrainConfig, env: EnvSource | None) -> dict[str, Any]:
    run_dir = train_run(config, env=env).run_dir
    assert run_dir is not None
    return load_checkpoint(run_dir)


def _evaluates_and_predicts(session: Session) -> None:
    first, again = (session.evaluate(2, seed=5) for _ in range(2))
    _promise(first == again, "an evaluation with one seed gives one result")
    session.spaces.observation.seed(0)
    action, _ = predict(session, session.spaces.observation.sample())
    _promise(session.spaces.action.contains(action), "a predicted action lies in the action space")


def _promise(is_kept: bool, what: str) -> None:
    if not is_kept:
        raise BrokenPromise(f"not so: {what}")
