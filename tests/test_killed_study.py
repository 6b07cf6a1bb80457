"""A study that is killed in the middle goes on with the same command: no trial is lost, and none is made twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from conformance import small_config, training_rows, trials_in
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import read_yaml
from rl_training.experiment.runs import RunLock, create_run_dir
from rl_training.runtime import manager

pytest.importorskip("optuna")

ON_RAY = pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow, pytest.mark.xdist_group("ray")])
TRIALS = 2
STEPS = 8_000


def command_in(folder: Path, backend: str) -> list[str]:
    """Each trial takes a second or more, and its run saves itself every eighth of it."""
    space = folder / "space.yaml"
    space.write_text(yaml.safe_dump({"learning_rate": {"log": [1e-4, 1e-2]}}))
    flags = ["--env", "CartPole-v1", "--total-timesteps", str(STEPS), "--num-envs", "2", "--eval-episodes", "1"]
    flags += ["--checkpoint-interval", str(STEPS // 8), "--set", "rollout_steps=32", "--backend", backend]
    flags += ["--output-dir", str(folder), "--name", "study", "--space", str(space), "--pruning", "none"]
    return [sys.executable, "-m", "rl_training", "tune", "ppo", *flags, "--trials", str(TRIALS)]


def is_in_the_middle(study: Path) -> bool:
    """Whether a trial is complete, and the run of one that is not has saved itself."""
    try:
        trials = trials_in(study)
    except sqlite3.OperationalError:  # there is no table yet
        return False
    running = [number for number, state in trials if state == "RUNNING"]
    saved = [number for number in running if any(study.glob(f"runs/*/*/trial-{number:04d}-*/checkpoints/step-*"))]
    return bool(saved) and any(state == "COMPLETE" for _, state in trials)


def values_in(study: Path) -> dict[int, float]:
    with sqlite3.connect(study / "study.db") as database:
        return dict(database.execute("select trial_id, param_value from trial_params").fetchall())


@pytest.mark.parametrize("backend", ["auto", ON_RAY])
def test_a_study_survives_kill_9(backend: str, tmp_path: Path) -> None:
    command, study = command_in(tmp_path, backend), tmp_path / "tune" / "study"
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not is_in_the_middle(study):
        assert process.poll() is None, "the study has ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = values_in(study)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["trials"] == {"complete": TRIALS}, done.stderr
    assert trials_in(study) == [(number, "COMPLETE") for number in range(TRIALS)]
    assert values_in(study).items() >= before.items()
    runs = sorted((study / "runs" / "ppo" / "CartPole-v1").iterdir())
    assert [run.name for run in runs] == [f"trial-000{number}-seed0" for number in range(TRIALS)]
    for run in runs:
        steps = [row["global_step"] for row in training_rows(run)]
        assert steps == sorted(set(steps)), run.name
        assert steps[-1] >= STEPS
    assert "learning_rate" in read_yaml(Path(answer["preset"]))["algo_kwargs"]


def test_a_run_waits_for_what_its_killed_process_left_behind(tmp_path: Path) -> None:
    """A worker on Ray outlives its driver by seconds: until it is gone, its run is neither removed nor failed."""
    config = small_config("ppo", tmp_path, run_name="trial")
    run_dir = create_run_dir(tmp_path, config.algo, config.env_id, config.seed, "trial")
    locked, was_there = RunLock(run_dir), []

    def end() -> None:
        was_there.append(locked.path.exists())
        locked.__exit__(None, None, None)

    locked.__enter__()
    threading.Timer(0.5, end).start()
    assert manager.train_or_resume(config).run_dir == run_dir
    assert was_there == [True]


def test_the_wait_for_a_process_that_stays_ends_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "PREDECESSOR_S", 0.1)
    config = small_config("ppo", tmp_path, run_name="trial")
    run_dir = create_run_dir(tmp_path, config.algo, config.env_id, config.seed, "trial")
    with RunLock(run_dir), pytest.raises(RLTrainingError, match="is being written by process"):
        manager.train_or_resume(config)
    assert run_dir.is_dir()
