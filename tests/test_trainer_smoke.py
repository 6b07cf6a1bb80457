"""The loop: what it logs, saves, evaluates and stops on, whichever algorithm runs."""

from __future__ import annotations

import csv
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from conformance import differences, rows_of, small_config, train_state, training_rows
from rl_training.algorithms.base import UpdateResult
from rl_training.errors import EnvironmentFault, NonFiniteError, StoppedBySignal
from rl_training.experiment.checkpointing import CheckpointStore, load_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.manager import resume_run, train_run
from rl_training.runtime.session import Session
from support import FaultyEnv


class Recorder(Callback):
    def __init__(self) -> None:
        self.hooks: list[str] = []

    def on_start(self, session: Session) -> None:
        self.hooks.append("start")

    def on_update(self, session: Session, result: UpdateResult) -> None:
        self.hooks.append("update")

    def on_checkpoint(self, session: Session) -> None:
        self.hooks.append("checkpoint")

    def on_end(self, session: Session) -> None:
        self.hooks.append("end")


def test_callbacks_hear_of_every_update_in_order(tmp_path: Path) -> None:
    recorder = Recorder()
    train_state(small_config("ppo", tmp_path, backend="sync", total_timesteps=64), callbacks=[recorder])
    # One rollout: 2 epochs of 2 minibatches.
    assert recorder.hooks == ["start", *["update"] * 4, "checkpoint", "end"]


@pytest.mark.parametrize("algo", ["ppo", "impala"])
def test_an_update_is_heard_of_once_for_each_gradient_step(algo: str, tmp_path: Path) -> None:
    recorder = Recorder()
    run_dir, state = train_state(small_config(algo, tmp_path), callbacks=[recorder])
    assert recorder.hooks.count("update") == state["progress"]["gradient_steps"] > 0
    # What belongs to a rollout and to no update is in its row nevertheless.
    assert all("explained_variance" in row for row in training_rows(run_dir))


def test_what_a_callback_adds_to_a_row_reaches_the_files(tmp_path: Path) -> None:
    class Doubled(Callback):
        def on_log(self, session: Session, row: dict[str, Any]) -> None:
            row["twice_the_step"] = 2 * row["global_step"]

    config = small_config("ppo", tmp_path, loggers=["jsonl", "csv"])
    result = train_run(config, callbacks=[Doubled()])
    assert result.run_dir is not None
    rows = training_rows(result.run_dir)
    assert [row["twice_the_step"] for row in rows] == [2 * row["global_step"] for row in rows] != []
    with (result.run_dir / "metrics.csv").open() as file:
        written = [row["twice_the_step"] for row in csv.DictReader(file) if row["gradient_steps"]]
    assert [float(value) for value in written] == [row["twice_the_step"] for row in rows]
    assert result.metrics["twice_the_step"] == rows[-1]["twice_the_step"]


class Evaluations(Callback):
    def __init__(self) -> None:
        self.heard: list[Evaluation] = []
        self.best: list[int] = []

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self.heard.append(evaluation)

    def on_best(self, session: Session, step: int) -> None:
        self.best.append(step)


@pytest.mark.parametrize(("interval", "steps"), [(None, [256]), (128, [128, 256, 256])])
def test_the_final_evaluation_is_heard_of_too_and_there_is_a_best(
    interval: int | None, steps: list[int], tmp_path: Path
) -> None:
    evaluations = Evaluations()
    config = small_config("ppo", tmp_path, backend="sync", eval_interval=interval)
    result = train_run(config, callbacks=[evaluations])
    assert [evaluation.step for evaluation in evaluations.heard] == steps
    assert evaluations.heard[-1] == result.evaluation
    assert result.run_dir is not None
    logged = [row for row in rows_of(result.run_dir) if "eval_return_mean" in row]
    assert logged == [evaluation.row() for evaluation in evaluations.heard]
    best = CheckpointStore(result.run_dir).best()
    assert best is not None
    assert best.name == f"step-{evaluations.best[-1]}"
    returns = {evaluation.step: evaluation.return_mean for evaluation in evaluations.heard}
    assert returns[evaluations.best[-1]] == max(returns.values())


def test_without_evaluations_there_is_none_at_the_end_either(tmp_path: Path) -> None:
    evaluations = Evaluations()
    result = train_run(small_config("ppo", tmp_path, total_timesteps=64, eval_episodes=0), callbacks=[evaluations])
    assert (evaluations.heard, evaluations.best, result.evaluation) == ([], [], None)


def test_metrics_are_means_over_the_interval_not_the_last_minibatch(tmp_path: Path) -> None:
    losses: list[float] = []

    class Losses(Callback):
        def on_update(self, session: Session, result: UpdateResult) -> None:
            losses.extend(float(v) for name, v in result.metrics.items() if name == "policy_loss")

    run_dir, _ = train_state(small_config("ppo", tmp_path, backend="sync", total_timesteps=64), callbacks=[Losses()])
    assert len(set(losses)) > 1
    assert training_rows(run_dir)[0]["policy_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_evaluation_checkpoints_the_best_and_stops_at_the_target(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, total_timesteps=2000, eval_interval=128, target_return=1.0)
    result = train_run(config)
    assert result.stop_reason is not None
    assert "target was 1" in result.stop_reason
    assert result.global_step < 500
    assert result.run_dir is not None
    assert CheckpointStore(result.run_dir).best() is not None


def test_early_stopping_waits_its_patience(tmp_path: Path) -> None:
    config = small_config(
        "ppo",
        tmp_path,
        total_timesteps=20_000,
        eval_interval=128,
        early_stop_patience=2,
        algo_kwargs={"learning_rate": 1e-9},
    )
    result = train_run(config)
    assert result.global_step < 20_000
    assert result.run_dir is not None
    assert load_checkpoint(result.run_dir)["progress"]["evaluations_since_best"] >= 2


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_a_checkpoint_that_resumes_exactly(signum: int, code: int, tmp_path: Path) -> None:
    class Signal(Callback):
        def on_log(self, session: Session, row: Any) -> None:
            if session.progress.global_step > 100:
                os.kill(os.getpid(), signum)

    config = small_config("ppo", tmp_path, run_name="signalled")
    with pytest.raises(StoppedBySignal) as stopped:
        train_run(config, callbacks=[Signal()])
    assert stopped.value.exit_code == code
    run_dir = next(tmp_path.glob("ppo/*/signalled"))
    assert load_checkpoint(run_dir)["progress"]["global_step"] < config.total_timesteps
    resume_run(run_dir)
    _, uninterrupted = train_state(small_config("ppo", tmp_path, run_name="signalled"))
    uninterrupted["config"]["run_name"] = "signalled"
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_a_number_that_is_not_finite_is_named_and_the_last_checkpoint_stays_good(tmp_path: Path) -> None:
    class Poison(Callback):
        def on_checkpoint(self, session: Session) -> None:
            next(iter(session.policy.parameters())).data.fill_(math.nan)

    config = small_config("ppo", tmp_path, backend="sync", checkpoint_interval=64, run_name="poisoned")
    with pytest.raises(NonFiniteError, match=r"became nan at step \d+.*last good checkpoint is .*step-64"):
        train_run(config, callbacks=[Poison()])
    assert load_checkpoint(next(tmp_path.glob("ppo/*/poisoned")))["progress"]["global_step"] == 64


def test_a_fault_of_an_environment_is_named_and_the_last_checkpoint_stays_good(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, checkpoint_interval=64, run_name="faulty")
    with pytest.raises(EnvironmentFault, match=r"environment 0, step 50"):
        train_run(config, env=lambda: FaultyEnv("raises", at_step=50))
    assert load_checkpoint(next(tmp_path.glob("ppo/*/faulty")))["progress"]["global_step"] == 64


def test_rows_beyond_the_checkpoint_are_forgotten_on_resume(tmp_path: Path) -> None:
    """A killed process had logged further than its last checkpoint."""
    config = small_config("ppo", tmp_path, backend="sync", checkpoint_interval=128, total_timesteps=192)
    run_dir, _ = train_state(config)
    steps = [row["global_step"] for row in rows_of(run_dir)]
    (run_dir / "checkpoints" / "latest").unlink()
    (run_dir / "checkpoints" / "latest").symlink_to("step-128")
    resume_run(run_dir)
    assert [row["global_step"] for row in rows_of(run_dir)] == steps
