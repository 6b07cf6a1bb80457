"""Real processes and real signals: from the first second to the last, a signal ends a run soon and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run

TESTS = Path(__file__).parent
SOON_S = 10.0
FIRST_PROGRESS_S = 60.0


class Run:
    """`rl-training train ppo` in a process group of its own, as a terminal would start it."""

    def __init__(self, tmp_path: Path, env: str, *flags: str, **env_kwargs: Any) -> None:
        self.output = tmp_path / "runs"
        command = ["train", "ppo", "--env", env, "--num-envs", "2", "--set", "rollout_steps=16", "--log-interval", "1"]
        given = ["--env-kwargs", json.dumps(env_kwargs), "--output-dir", str(self.output), "--run-name", "run"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rl_training", *command, *given, "--display", "none", *flags],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def run_dir(self) -> Path:
        return next(self.output.glob("ppo/*/run"))

    def has_logged(self, what: str) -> bool:
        return any(what in path.read_text() for path in self.output.glob("ppo/*/run/metrics.jsonl"))

    def wait_for(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + FIRST_PROGRESS_S
        while not happened():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def signal(self, signum: int) -> None:
        os.killpg(self.process.pid, signum)  # a terminal's Ctrl-C reaches the whole group

    def ended(self) -> tuple[int, str]:
        """(exit code, stderr), soon."""
        try:
            _, err = self.process.communicate(timeout=SOON_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        assert "Traceback" not in err
        return self.process.returncode, err

    def saved_steps(self) -> int:
        return load_checkpoint(self.run_dir)["progress"]["global_step"]


BOTH = pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
ENDLESS = "troubled_envs:Endless"


@BOTH
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_in_training(signum: int, code: int, backend: str, tmp_path: Path) -> None:
    run = Run(tmp_path, "CartPole-v1", "--backend", backend, "--total-timesteps", "100000000")
    run.wait_for(lambda: run.has_logged("gradient_steps"))
    run.signal(signum)
    assert run.ended()[0] == code
    assert run.saved_steps() > 0
    more = run.saved_steps() + 64
    assert resume_run(run.run_dir, total_timesteps=more, eval_episodes=0).global_step >= more


@BOTH
def test_in_the_final_evaluation_whose_episodes_never_end(signum: int, code: int, tmp_path: Path) -> None:
    limits = ("--eval-interval", "null", "--eval-max-steps", "1000000000")
    run = Run(tmp_path, ENDLESS, "--total-timesteps", "64", *limits)
    run.wait_for(lambda: bool(list(run.output.glob("ppo/*/run/checkpoints/latest"))))
    run.signal(signum)
    assert run.ended()[0] == code
    assert run.saved_steps() == 64


def test_in_a_periodic_evaluation_whose_episodes_never_end(tmp_path: Path) -> None:
    limits = ("--eval-interval", "64", "--eval-max-steps", "1000000000")
    run = Run(tmp_path, ENDLESS, "--total-timesteps", "100000", *limits)
    run.wait_for(lambda: run.has_logged('"global_step": 64'))
    run.signal(signal.SIGTERM)
    assert run.ended()[0] == 143
    assert run.saved_steps() == 64


@pytest.mark.parametrize("stubborn", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_while_an_environment_hangs(backend: str, stubborn: bool, tmp_path: Path) -> None:
    """What was learned before is saved, though the collector is in the middle of a rollout.

    An environment in this process that does not let go can only be left with the process.
    """
    asleep = tmp_path / "asleep"
    saves = ("--checkpoint-interval", "32") if stubborn else ()
    flags = ("--backend", backend, "--total-timesteps", "100000", *saves)
    run = Run(tmp_path, "troubled_envs:Sleeper", *flags, asleep=str(asleep), stubborn=stubborn)
    run.wait_for(asleep.exists)
    run.signal(signal.SIGTERM)
    assert run.ended()[0] == 143
    assert run.saved_steps() == 64  # the hang is at an environment's 40th step, in the third rollout of 2 × 16
    wake = {"env_kwargs": {"asleep": str(asleep), "at": 10**9}}
    assert resume_run(run.run_dir, total_timesteps=128, eval_episodes=0, **wake).global_step == 128


@BOTH
def test_two_at_once_before_the_first_checkpoint(signum: int, code: int, tmp_path: Path) -> None:
    run = Run(tmp_path, ENDLESS, "--total-timesteps", "100000000", pause=0.1)
    run.wait_for(lambda: run.has_logged("gradient_steps"))
    run.signal(signum)
    time.sleep(0.1)
    began = time.monotonic()
    run.signal(signum)
    assert run.ended()[0] == code
    assert time.monotonic() - began < 3.0  # a rollout alone takes 3.2 s
    assert run.saved_steps() > 0


def test_a_second_one_leaves_at_once_with_the_last_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, ENDLESS, "--total-timesteps", "100000000", "--checkpoint-interval", "32", pause=0.1)
    run.wait_for(lambda: bool(list(run.output.glob("ppo/*/run/checkpoints/latest"))))
    run.signal(signal.SIGINT)
    time.sleep(0.1)
    began = time.monotonic()
    run.signal(signal.SIGINT)
    assert run.ended()[0] == 130
    assert time.monotonic() - began < 3.0
    assert run.saved_steps() % 32 == 0


@BOTH
def test_while_the_environment_is_made(signum: int, code: int, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    run = Run(tmp_path, "troubled_envs:SlowToMake", asleep=str(asleep))
    run.wait_for(asleep.exists)
    run.signal(signum)
    assert run.ended()[0] == code
    assert not run.output.exists()
