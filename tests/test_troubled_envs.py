"""Environments that hang, die, leave or answer nonsense: each trouble is named with environment and step."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from conformance import small_config
from rl_training.envs import processes
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Envs
from rl_training.errors import ConfigError, EnvironmentFault, RLTrainingError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run, train_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import evaluate_checkpoint, load_session, predict
from support import FaultyEnv, ScriptedEnv
from troubled_envs import Endless, Mortal

TESTS = Path(__file__).parent
NOTHING = np.zeros(3, dtype=np.int64)
BACKENDS = pytest.mark.parametrize("backend", ["sync", "async"])


def three(source: Any, backend: str, **options: Any) -> Envs:
    envs = make_envs(EnvSpec(source, backend=backend, **options), 3)
    envs.reset(10)
    return envs


@pytest.mark.parametrize(
    ("fate", "message"),
    [
        ("os._exit", "its process exited with 7"),
        ("SIGKILL", "its process was ended by SIGKILL"),
        ("SIGSEGV", "its process was ended by SIGSEGV"),
        ("hangs", r"it has not answered for 0.5 s \(step_timeout_s\)"),
    ],
)
def test_an_async_environment_that_dies_or_hangs_is_named(fate: str, message: str) -> None:
    envs = three(partial(Mortal, fate, only_seed=12), "async", step_timeout_s=0.5)
    envs.step(NOTHING)
    with pytest.raises(EnvironmentFault, match=f"^environment 2, step 2: {message}"):
        envs.step(NOTHING)
    envs.close()


@pytest.mark.parametrize("fate", ["SIGKILL", "hangs"])
def test_an_async_environment_is_replaced_as_often_as_said_and_its_episode_is_cut(fate: str, caplog: Any) -> None:
    envs = three(partial(Mortal, fate, at=3), "async", step_timeout_s=0.5, restarts=3)
    for _ in range(2):
        assert not envs.step(NOTHING).truncated.any()
    step = envs.step(NOTHING)
    assert step.truncated.all()
    assert not step.terminated.any()
    assert step.rewards.tolist() == [0, 0, 0]
    assert step.final_obs.tolist() == [[0, 2]] * 3  # the last that was seen
    assert step.obs.tolist() == [[0, 0]] * 3
    assert caplog.text.count("its episode is cut") == 3
    for _ in range(2):
        envs.step(NOTHING)
    with pytest.raises(EnvironmentFault, match="environment 0, step 6"):
        envs.step(NOTHING)
    envs.close()


@BACKENDS
def test_an_environment_that_leaves_python_is_a_fault(backend: str) -> None:
    envs = three(partial(Mortal, "sys.exit", only_seed=12), backend)
    envs.step(NOTHING)
    with pytest.raises(EnvironmentFault, match="environment 2, step 2: step raised SystemExit: 0"):
        envs.step(NOTHING)
    envs.close()


@BACKENDS
def test_an_environment_that_hangs_ends_the_run_with_its_name(backend: str, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, backend=backend, step_timeout_s=0.5, checkpoint_interval=32, run_name="hung")
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match=r"environment 0, step 40: it has not answered for 0.5 s"):
        train_run(config, env=partial(Mortal, "hangs", at=40))
    assert time.monotonic() - began < 10.0
    assert load_checkpoint(next(tmp_path.glob("ppo/*/hung")))["progress"]["global_step"] == 64


class Answers(ScriptedEnv):
    """Answers its second step with something else."""

    def __init__(self, what: str) -> None:
        super().__init__(length=100)
        self.what = what

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.t < 2:
            return obs, reward, terminated, truncated, info
        return {
            "four parts": (obs, reward, terminated, info),
            "nothing": None,
            "a vector reward": (obs, np.ones(2), terminated, truncated, info),
            "a vector of one": (obs, np.ones(1), terminated, truncated, info),
            "no reward": (obs, None, terminated, truncated, info),
            "terminations": (obs, reward, np.array([False, True]), truncated, info),
            "a termination in a vector": (obs, reward, np.array([False]), truncated, info),
            "no termination": (obs, reward, None, truncated, info),
            "no truncation": (obs, reward, terminated, None, info),
        }[self.what]


@BACKENDS
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("four parts", r"step must return \(observation, .*it returned 4 parts"),
        ("nothing", r"step must return \(observation, .*it returned None"),
        ("a vector reward", "reward must be a number, it is array"),
        ("a vector of one", "reward must be a number, it is array"),
        ("no reward", "reward must be a number, it is None"),
        ("terminations", "terminated must be True or False, it is array"),
        ("a termination in a vector", "terminated must be True or False, it is array"),
        ("no termination", "terminated must be True or False, it is None"),
        ("no truncation", "truncated must be True or False, it is None"),
    ],
)
def test_an_answer_that_is_none_is_named_on_every_backend(what: str, message: str, backend: str) -> None:
    envs = three(partial(Answers, what), backend)
    envs.step(NOTHING)
    with pytest.raises(EnvironmentFault, match=f"^environment 0, step 2: {message}"):
        envs.step(NOTHING)
    envs.close()


class Looks(ScriptedEnv):
    def __init__(self, space: Any) -> None:
        super().__init__()
        self.observation_space = space


@BACKENDS
@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Tuple((spaces.Text(5),)),
        None,
        spaces.Dict({"text": spaces.Text(5)}),
    ],
    ids=str,
)
def test_observation_spaces_without_a_network_are_refused_by_name(space: Any, backend: str, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, backend=backend)
    with pytest.raises(EnvironmentFault, match=r"the observation space .* is not supported"):
        Session(config, env=partial(Looks, space))


@pytest.mark.parametrize("backend", ["sync", "async", "native"])
def test_what_an_environment_prints_does_not_spoil_json(backend: str, tmp_path: Path) -> None:
    env = "CartPole-v1" if backend == "native" else "troubled_envs:Talkative"
    flags = ["--total-timesteps", "256", "--num-envs", "2", "--eval-episodes", "2", "--backend", backend, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", "train", "ppo", "--env", env, "--output-dir", str(tmp_path), *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["global_step"] >= 256
    assert backend == "native" or "a step past Python" in done.stderr


@pytest.mark.parametrize("fault", ["nan_obs", "inf_reward", "nan_reset"])
def test_numbers_that_are_not_finite_have_no_score(fault: str, tmp_path: Path) -> None:
    """The fault is an environment of evaluation alone."""
    run_dir = train_run(small_config("ppo", tmp_path, backend="sync"), env=ScriptedEnv).run_dir
    assert run_dir is not None
    with pytest.raises(EnvironmentFault, match=r"environment \d, step \d of the evaluation: .* is not finite"):
        evaluate_checkpoint(run_dir, env=partial(FaultyEnv, fault), episodes=2)


def test_predict_refuses_numbers_that_are_not_finite(tmp_path: Path) -> None:
    session = Session(small_config("ppo", tmp_path))
    with pytest.raises(ConfigError, match="not finite"):
        predict(session, np.array([0.0, np.nan, 0.0, 0.0]))


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    session = Session(small_config("ppo", tmp_path))
    state = session.state_dict()
    next(iter(state["learner"]["algorithm"]["policy"].values())).fill_(float("nan"))
    with pytest.raises(RLTrainingError, match="not finite"):
        session.load_state_dict(state)


def test_an_evaluation_ends_though_its_episodes_do_not(tmp_path: Path, caplog: Any) -> None:
    config = small_config("ppo", tmp_path, num_envs=2, eval_episodes=3, eval_max_steps=20)
    result = train_run(config, env=Endless)
    assert result.evaluation is not None
    assert result.evaluation.lengths == (20, 20, 20)
    assert result.evaluation.returns == (210.0, 210.0, 210.0)  # 1 + 2 + … + 20: each begins with a reset
    assert result.evaluation.summary()["episodes_cut"] == 3
    assert "3 of 3 episodes did not end within 20 steps" in caplog.text


def test_by_default_an_episode_is_cut_at_ten_times_the_longest_of_training(tmp_path: Path) -> None:
    session = Session(small_config("ppo", tmp_path), env=partial(ScriptedEnv, length=3))
    assert session.evaluation_limit() == 1000  # nothing is known yet
    session.progress.longest_episode = 150
    assert session.evaluation_limit() == 1500
    assert Session(small_config("ppo", tmp_path)).evaluation_limit() is None  # CartPole ends by itself


@pytest.mark.parametrize(
    "changes",
    [
        {"wrappers": [{"clip_reward": {"low": 1, "high": -1}}]},
        {"wrappers": [{"time_limit": 0}]},
        {"wrappers": [{"time_limit": {"max_episode_steps": -1}}]},
        {"env_kwargs": {"max_episode_steps": -1}},
        {"algo_kwargs": {"adam_eps": True}},
        {"num_envs": True},
    ],
    ids=str,
)
def test_nonsense_is_refused_before_the_first_step(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train_run(small_config("ppo", tmp_path, **changes))
    assert not list(tmp_path.iterdir())


def test_environments_of_evaluation_are_checked_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no_such_key"):
        train_run(small_config("ppo", tmp_path, eval_env_kwargs={"no_such_key": 1}))
    assert not list(tmp_path.iterdir())


def test_a_run_that_learns_nothing_says_so(tmp_path: Path) -> None:
    config = small_config("dreamer", tmp_path, algo_kwargs={"learning_starts": 300})
    with pytest.raises(RLTrainingError, match=r"dreamer has learned nothing: .* steps passed without an update"):
        train_run(config)


LOCAL = ("native", "sync", "async")


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in LOCAL for b in LOCAL if a != b])
def test_a_run_goes_on_with_another_local_backend(before: str, after: str, tmp_path: Path) -> None:
    run_dir = train_run(small_config("ppo", tmp_path, backend=before)).run_dir
    assert run_dir is not None
    resume_run(run_dir, total_timesteps=512, backend=after)
    session = load_session(run_dir)
    assert session.config.backend == after
    assert session.progress.global_step >= 512
    session.close()


def test_a_worker_whose_run_was_killed_leaves_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)
    runs, workers = multiprocessing.Pipe()
    workers.send_bytes(b"an answer that nobody will read")
    runs.close()
    nothing: Any = SimpleNamespace(arrays=dict)
    processes._serve(0, 0, ScriptedEnv, multiprocessing.Pipe()[0], workers, nothing)
