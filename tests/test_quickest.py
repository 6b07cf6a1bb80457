"""What `auto` makes of environments that are slow to step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.data.trees import tree_leaves
from rl_training.envs.factory import EnvSpec
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig, make_config
from rl_training.runtime import quickest
from rl_training.runtime.manager import run_config, train_run
from rl_training.runtime.quickest import HAND_OVER_S, LEAST_GAIN, step_seconds, with_quickest_backend


class Walk(gym.Env):
    """A random walk of twelve steps that hides its state; `pause` makes its steps as long."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, pause: float = 0.0, breaks: bool = False) -> None:
        self.pause, self.breaks, self.at = pause, breaks, np.zeros(2, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.t = self.np_random.normal(size=2).astype(np.float32), 0
        return self.at.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.breaks:
            raise RuntimeError("broken")
        time.sleep(self.pause)
        self.t += 1
        self.at += (0.1 if action else -0.1) + self.np_random.normal(scale=0.1, size=2).astype(np.float32)
        return self.at.copy(), float(self.at.sum()), False, self.t == 12, {}


class Open(Walk):
    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at.copy(), "t": self.t}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.t = state["at"].copy(), state["t"]


def config_of(**keys: Any) -> TrainConfig:
    return make_config({"algo": "a2c", "env_id": "CartPole-v1", "num_envs": 4, **keys})


def slow() -> Walk:
    return Walk(pause=0.002)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_slow_environments_that_hide_their_state_get_processes() -> None:
    config, told = with_quickest_backend(config_of(), slow)
    assert config.backend == "async"
    assert told is not None
    assert "every environment gets a process" in told


@pytest.mark.parametrize(
    ("env", "keys"),
    [
        (Walk, {}),  # quick
        (lambda: Open(pause=0.002), {}),  # its state is in checkpoints: episodes go on there, in this process only
        (lambda: Walk(breaks=True), {}),  # training is to name the fault
        (slow, {"backend": "sync"}),  # asked for
        (slow, {"num_envs": 1}),
        (slow, {"collect_ahead": True, "algo": "ppo"}),
        (Walk(pause=0.002), {}),  # there is no other to make
    ],
    ids=["quick", "open", "broken", "sync", "one", "ahead", "instance"],
)
def test_all_others_stay(env: Any, keys: dict[str, Any]) -> None:
    given = config_of(**keys)
    assert with_quickest_backend(given, env) == (given, None)


def test_one_core_has_no_use_for_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert with_quickest_backend(config_of(), slow)[1] is None


def test_the_gain_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cores each saves half of a step."""
    for seconds, moves in ((1.9 * LEAST_GAIN * HAND_OVER_S, False), (2.1 * LEAST_GAIN * HAND_OVER_S, True)):
        monkeypatch.setattr(quickest, "step_seconds", lambda spec, seconds=seconds: seconds)
        assert (with_quickest_backend(config_of(), Walk)[0].backend == "async") is moves


def test_a_step_is_measured() -> None:
    seconds = step_seconds(EnvSpec(slow, backend="sync"))
    assert seconds is not None
    assert 0.002 < seconds < 0.02
    assert step_seconds(EnvSpec("CartPole-v1", backend="sync")) is None  # it offers its state


def test_a_run_remembers_and_learns_the_same_as_in_one_process(tmp_path: Path) -> None:
    """Also across a checkpoint, at which both begin new episodes."""
    weights = []
    for backend in ("auto", "sync"):
        config = config_of(
            total_timesteps=160, checkpoint_interval=80, eval_episodes=2, backend=backend, output_dir=str(tmp_path)
        )
        run_dir = train_run(config, env=slow).run_dir
        assert run_dir is not None
        assert run_config(run_dir).backend == {"auto": "async", "sync": "sync"}[backend]
        learner = load_checkpoint(run_dir, "latest")["learner"]
        policy = learner["algorithm"]["policy"]
        weights.append(torch.cat([torch.as_tensor(leaf).flatten() for leaf in tree_leaves(policy)]))
    assert torch.equal(*weights)
