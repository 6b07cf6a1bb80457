"""Workers on Ray: the same numbers as at home, streams kept apart, faults survived or named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance import differences, rows_of, small_config, train_state, training_rows
from rl_training.data.rollout import Rollout
from rl_training.errors import EnvironmentFault, RLTrainingError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.collector import PolicySnapshot
from rl_training.runtime.manager import resume_run, train_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import load_session
from rl_training.tools.tune import OF_RAY, tune
from support import FaultyEnv, ScriptedEnv
from troubled_envs import Mortal

ray = pytest.importorskip("ray")
from rl_training.distributed import reaper  # noqa: E402
from rl_training.distributed.connection import connect  # noqa: E402
from rl_training.distributed.reaper import LAST_WORDS, family, running  # noqa: E402
from rl_training.distributed.runs import outcomes_on_ray, train_in_parallel  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module", autouse=True)
def _ray_session() -> Iterator[None]:
    connect(None)
    yield
    ray.shutdown()


class DoomedEnv(ScriptedEnv):
    """At the third step of each of its lives it meets the next fate; a file remembers how many it has met."""

    def __init__(self, path: Path, *fates: str) -> None:
        super().__init__(length=5)
        self.path, self.fates, self.count = path, fates, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        met = len(self.path.read_bytes()) if self.path.exists() else 0
        if self.count == 3 and met < len(self.fates):
            self.path.write_bytes(b"x" * (met + 1))
            if self.fates[met] == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        return super().step(action)


def ray_config(algo: str, output_dir: Path, **changes: Any) -> Any:
    return small_config(algo, output_dir, backend="ray", **changes)


def collected(session: Session, version: int) -> Rollout:
    session.collector.publish(PolicySnapshot(version, weights=session.policy.state_dict()))
    return session.collector.collect(8)


@pytest.mark.parametrize("algo", ["ppo", "dreamer"])
def test_one_worker_gives_the_local_numbers_and_the_run_goes_on_at_home(algo: str, tmp_path: Path) -> None:
    at_home, _ = train_state(small_config(algo, tmp_path))
    on_ray, _ = train_state(ray_config(algo, tmp_path, workers=1))
    for run_dir in (at_home, on_ray):
        resume_run(run_dir, total_timesteps=320, backend="auto")
    differing = differences(load_checkpoint(at_home), load_checkpoint(on_ray))
    assert [name for name in differing if name != "/config/workers"] == []


def test_two_workers_side_by_side_resume_exactly(tmp_path: Path) -> None:
    with closing(Session(ray_config("ppo", tmp_path, workers=2, num_envs=4))) as session:
        first = collected(session, 0)
        assert first.rewards.shape == (8, 4)
        assert not torch.equal(first.obs[:, :2], first.obs[:, 2:]), "the workers have random numbers of their own"
        state = session.state_dict()
        expected = collected(session, 1)
        session.load_state_dict(state)
        again = collected(session, 1)
    assert torch.equal(again.obs, expected.obs)
    assert torch.equal(again.actions, expected.actions)
    config = small_config("ppo", tmp_path, num_envs=4)
    with closing(Session(config)) as at_home:  # where the environments are not divided: from new episodes
        at_home.load_state_dict(state)
        assert at_home.collector.collect(8).starts[0].all()


def test_async_goes_on_with_a_local_run_overlaps_and_measures_its_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[Any] = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value) or put(value))
    run_dir, before = train_state(small_config("impala", tmp_path))
    resume_run(run_dir, total_timesteps=1024, backend="ray", ray_mode="async")
    rows, progress = training_rows(run_dir), load_checkpoint(run_dir)["progress"]
    assert rows[-1]["policy_lag"] >= 1
    assert max(row.get("overlap", 0) for row in rows) > 0
    assert len(puts) == progress["iterations"] - before["progress"]["iterations"], "once per version, not per worker"
    assert progress["global_step"] == rows[-1]["global_step"] >= 1024


def test_async_replays_keep_the_workers_streams_apart(tmp_path: Path) -> None:
    """Observations are [episode, t]: within a stream t counts up, or a new episode begins."""
    config = ray_config("dreamer", tmp_path, ray_mode="async", workers=2, num_envs=4)
    with closing(Session(config, env=partial(ScriptedEnv, length=5))) as session:
        sources: list[int] = []
        while min(sources.count(0), sources.count(1)) < 3:  # either may be ready many times before the other
            rollout = collected(session, len(sources))
            session.learner.replay.add(rollout)
            sources.append(rollout.source)
        replay = session.learner.replay.state_dict()
    filled = np.minimum(replay["ends"], session.learner.replay.places)
    for first, last in pairwise(np.cumsum([0, *filled])):
        t = replay["columns"]["obs"][first:last, 1]
        assert ((np.diff(t) == 1) | replay["columns"]["is_first"][first + 1 : last]).all()


def test_a_worker_that_dies_or_hangs_is_replaced_and_its_fragment_counted(tmp_path: Path) -> None:
    config = ray_config("ppo", tmp_path, workers=1, total_timesteps=128, step_timeout_s=1.0)
    result = train_run(config, env=partial(DoomedEnv, tmp_path / "met", "dies", "hangs"))
    assert result.metrics["lost_fragments"] == 2
    assert result.global_step == 128


@pytest.mark.parametrize(
    ("fate", "error", "message"),
    [("dies", RLTrainingError, "worker 0 died"), ("hangs", EnvironmentFault, "worker 0: .* hung for more than 1 s")],
)
def test_a_worker_that_does_so_again_and_again_stops_the_run(
    fate: str, error: type, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.distributed.collector.MAX_DEATHS", 1)
    config = ray_config("ppo", tmp_path, workers=1, step_timeout_s=1.0)
    with pytest.raises(error, match=message):
        train_run(config, env=partial(DoomedEnv, tmp_path / "met", fate))


def test_an_environment_that_raises_stops_the_run_as_at_home(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"worker 0: .*the motor is stuck"):
        train_run(ray_config("ppo", tmp_path, workers=1), env=partial(FaultyEnv, "raises"))


def test_ray_init_is_tried_again_with_a_message(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fails(*_args: Any, **_options: Any) -> None:
        raise Exception("The current node timed out during startup")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(RLTrainingError, match=r"attempt 3 of 3.*timed out during startup.*overloaded"):
        connect(None)
    assert caplog.text.count("trying again") == 2


@pytest.mark.parametrize(
    "algo",
    [
        "ppo",
        "trpo",
        "recurrent_ppo",
        "impala",
        "ppg",
        *(pytest.param(a, marks=pytest.mark.slow) for a in ("a2c", "appo", "gail")),
    ],
)
def test_two_learners_with_half_of_each_minibatch_equal_one(algo: str, tmp_path: Path) -> None:
    sequences = {"sequence_length": 11} if algo == "recurrent_ppo" else {}
    odd = {"algo_kwargs": {"rollout_steps": 33, "normalize_advantages": True, **sequences}, "backend": "sync"}
    if algo == "trpo":  # its conjugate gradients magnify rounding, of several learners and of kernels
        odd["algo_kwargs"]["cg_damping"] = 1.0
    _, alone = train_state(small_config(algo, tmp_path, **odd))
    _, shared = train_state(small_config(algo, tmp_path, learners=2, **odd))
    for name, weight in alone["learner"]["algorithm"]["policy"].items():
        torch.testing.assert_close(shared["learner"]["algorithm"]["policy"][name], weight, atol=1e-5, rtol=0)


def test_evaluation_in_the_background_gives_the_same_scores_and_marks_the_best(tmp_path: Path) -> None:
    options = {"eval_interval": 64, "eval_episodes": 2, "total_timesteps": 256, "backend": "sync"}
    beside, _ = train_state(small_config("ppo", tmp_path, eval_in_background=True, **options))
    between, _ = train_state(small_config("ppo", tmp_path, **options))
    scores = [[row["eval_return_mean"] for row in rows_of(d) if "eval_return_mean" in row] for d in (beside, between)]
    assert scores[0] == scores[1]
    assert (beside / "checkpoints" / "best").resolve().name == (between / "checkpoints" / "best").resolve().name


def test_seeds_are_trained_at_a_time(tmp_path: Path) -> None:
    configs = [ray_config("ppo", tmp_path / "ray", seed=seed) for seed in (3, 4)]
    results = list(train_in_parallel(configs))
    _, alone = train_state(small_config("ppo", tmp_path / "alone", seed=4))
    assert [result.run_dir.name.rpartition("seed")[2] for result in results if result.run_dir] == ["3", "4"]
    assert differences(load_checkpoint(results[1].run_dir), alone) == []


def start_driver(tmp_path: Path, **options: Any) -> subprocess.Popen[str]:
    """A run on Ray in a process of its own that has saved two checkpoints."""
    flags = ["--backend", "ray", "--workers", "1", "--display", "none", "--checkpoint-interval", "500"]
    command = ["train", "--config", "ppo/cartpole", "--total-timesteps", "100000000", "--output-dir", str(tmp_path)]
    driver = subprocess.Popen([sys.executable, "-m", "rl_training", *command, *flags], **options)
    wait_until(lambda: len(list(tmp_path.glob("ppo/*/*/checkpoints/step-*"))) >= 2, seconds=90)
    return driver


def started_by(driver: subprocess.Popen[str]) -> dict[int, str]:
    """The driver's processes by number, and when each was started."""
    return descended_from(driver.pid)


def descended_from(pid: int) -> dict[int, str]:
    now = running()
    return family({pid: now[pid][1]}, now)


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_killed_driver_leaves_no_process_and_a_good_checkpoint(tmp_path: Path) -> None:
    driver = start_driver(tmp_path)
    started = started_by(driver)
    assert {"ray::DashboardAgent", "ray::RuntimeEnvAgent"} <= {command_of(pid).strip("\0") for pid in started}
    driver.kill()
    driver.wait()
    # On a machine that does nothing else it takes five seconds; Ray's agents would take a minute.
    wait_until(lambda: not family(started, running()), seconds=40)
    (run_dir,) = tmp_path.glob("ppo/*/*")
    with closing(load_session(run_dir)) as session:
        assert session.progress.global_step > 0


def test_the_reaper_ends_also_what_no_longer_shows_its_mark(tmp_path: Path) -> None:
    """Ray's agents write their titles over the environment that they were started with."""
    parent = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, {reaper.__file__!r}, "MARK={tmp_path}"], stdin=subprocess.PIPE)
command = ["sh", "-c", "env -i sleep 600; true"]
print(subprocess.Popen(command, env={{**os.environ, "MARK": {str(tmp_path)!r}}}).pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        shell = int(process.stdout.readline())
        wait_until(lambda: len(descended_from(shell)) == 2, seconds=20)
        started = descended_from(shell)
        time.sleep(reaper.LOOK_S + 1)
        os.kill(shell, signal.SIGKILL)  # the other is an orphan, and shows no mark
        process.kill()
    assert family(started, running())
    wait_until(lambda: not family(started, running()), seconds=30)


def test_a_killed_raylet_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    driver = start_driver(tmp_path, stderr=subprocess.PIPE, text=True)
    raylets = [pid for pid in started_by(driver) if "raylet/raylet" in command_of(pid)]
    os.kill(raylets[0], signal.SIGKILL)
    _, err = driver.communicate(timeout=15)
    assert driver.returncode == 1
    assert err == LAST_WORDS.decode()


@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_to_all_processes_saves_and_ends_the_run(signum: signal.Signals, tmp_path: Path) -> None:
    """As a terminal and a batch system send it: to the whole group."""
    driver = start_driver(tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    (run_dir,) = tmp_path.glob("ppo/*/*")
    before = load_checkpoint(run_dir)["progress"]["global_step"]
    os.killpg(driver.pid, signum)
    _, err = driver.communicate(timeout=30)
    assert driver.returncode == 128 + signum
    assert "Traceback" not in err
    assert f"saved; go on with: rl-training resume {run_dir}" in err
    assert load_checkpoint(run_dir)["progress"]["global_step"] >= before  # the signal may follow a checkpoint at once


def test_what_environments_print_on_workers_does_not_spoil_json(tmp_path: Path) -> None:
    flags = ["--backend", "ray", "--workers", "1", "--display", "none", "--json", "--total-timesteps", "128"]
    command = ["train", "ppo", "--env", "troubled_envs:Talkative", "--num-envs", "2", "--eval-episodes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", *command, *flags, "--output-dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["run_dir"]


def test_this_machine_is_neither_a_cluster_that_others_name_nor_open_to_them() -> None:
    code = (
        "from rl_training.distributed.connection import connect, ray\nconnect(None)\n"
        "import os; print(ray.util.get_node_ip_address(), os.environ['RAY_AUTH_MODE'])"
    )
    elsewhere = {**os.environ, "RAY_ADDRESS": "10.1.2.3:6379"}
    done = subprocess.run([sys.executable, "-c", code], env=elsewhere, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["127.0.0.1", "token"]


def test_a_worker_that_dies_now_and_again_is_not_replaced_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.distributed.collector.MAX_DEATHS_WITHIN", 2)
    config = ray_config("ppo", tmp_path, workers=1, total_timesteps=10_000)
    with pytest.raises(RLTrainingError, match="worker 0 died 2 times within 10,000 steps"):
        train_run(config, env=partial(Mortal, "SIGKILL", at=100))


def test_a_background_evaluator_that_dies_is_replaced(tmp_path: Path) -> None:
    met = tmp_path / "met"
    options = {"eval_interval": 64, "eval_episodes": 2, "total_timesteps": 256, "backend": "sync"}
    kwargs = {"env_kwargs": {"fate": "none"}, "eval_env_kwargs": {"fate": "SIGKILL", "met": str(met)}}
    run_dir, _ = train_state(
        small_config("ppo", tmp_path, eval_in_background=True, **options, **kwargs), env=partial(Mortal, at=2)
    )
    assert met.exists()
    assert [row["global_step"] for row in rows_of(run_dir) if "eval_return_mean" in row][:3] == [64, 128, 192]


def wait_until(happened: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_trial_on_ray_is_judged_once_and_its_study_goes_on_without_ray(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    config = small_config("a2c", tmp_path, total_timesteps=128, eval_interval=64)
    base = {key: value for key, value in config if key not in OF_RAY}
    study = {"space": {"learning_rate": {"log": [1e-4, 1e-2]}}, "trials": 1, "pruning": "none"}
    result = tune({**base, "backend": "ray", "workers": 1}, tmp_path / "study", **study)
    tune(base, tmp_path / "study", **study)  # nothing is left to do
    found = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study' / 'study.db'}")
    assert [trial.state.name for trial in found.get_trials()] == ["COMPLETE"]
    assert [len(trial.intermediate_values) for trial in found.get_trials()] == [1]
    runs = [path.name for path in (tmp_path / "study" / "runs").glob("*/*/*")]
    assert runs == [f"trial-0000-seed{config.seed}"]
    assert result.preset is not None


def test_a_trial_on_ray_whose_row_is_answered_with_true_is_ended(tmp_path: Path) -> None:
    config = small_config("a2c", tmp_path, total_timesteps=1_000_000, eval_episodes=0)
    ((number, result),) = outcomes_on_ray([config], jobs=1, tell=lambda *row: True)
    assert number == 0
    assert result.stop_reason == "it was asked to end"
    assert load_checkpoint(result.run_dir)["progress"]["global_step"] == result.global_step


def test_a_trial_on_ray_that_fails_is_an_outcome_and_the_others_go_on(tmp_path: Path) -> None:
    good = small_config("a2c", tmp_path, total_timesteps=64, eval_episodes=0)
    outcomes = outcomes_on_ray([good.changed(env_id="NoSuch-v0"), good], jobs=1, tell=lambda *row: None)
    failed, trained = (outcome for _, outcome in outcomes)
    assert "NoSuch" in str(failed)
    assert isinstance(failed, RLTrainingError)
    assert trained.global_step >= 64
