"""Rollouts that a second process collects while the learner learns."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from conformance import small_config
from rl_training.errors import ConfigError, EnvironmentFault
from rl_training.runtime.manager import train_run
from rl_training.runtime.policy import PolicySnapshot
from rl_training.runtime.session import Session
from rl_training.runtime.stopping import stoppable
from rl_training.tools.conformance import check_algorithm
from support import FaultyEnv
from troubled_envs import Sleeper


def test_what_is_collected_ahead_is_one_version_old_and_as_at_home(tmp_path: Path) -> None:
    sessions = [Session(small_config("ppo", tmp_path, collect_ahead=ahead)) for ahead in (False, True)]
    with closing(sessions[0]) as at_home, closing(sessions[1]) as session, session.kernels():
        versions = []
        for version in range(3):
            for each in (at_home, session):
                each.collector.publish(PolicySnapshot(version, weights=each.policy.state_dict()))
            expected, rollout = at_home.collector.collect(8), session.collector.collect(8)
            versions.append(int(rollout.policy_version[0, 0]))
            for name in ("obs", "actions", "behavior_logprobs", "values", "rewards"):
                assert torch.equal(getattr(rollout, name), getattr(expected, name))
        assert versions == [0, 0, 1]
        (process,) = (child for child in multiprocessing.active_children() if child.name == "collecting ahead")
        process.kill()
        with pytest.raises(EnvironmentFault, match="CartPole-v1: the process that steps it was ended by SIGKILL"):
            session.collector.state_dict()


def test_a_run_ahead_keeps_every_promise(tmp_path: Path) -> None:
    check_algorithm(small_config("ppo", tmp_path, collect_ahead=True), folder=tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(FaultyEnv, "raises"), "the motor.*is stuck"),
        (partial(Sleeper, os.devnull, at=3), r"it has not answered for 1 s \(step_timeout_s\)"),
    ],
)
def test_faults_of_environments_arrive(make: Any, message: str, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, collect_ahead=True, step_timeout_s=1.0)
    with stoppable(), pytest.raises(EnvironmentFault, match=message):
        train_run(config, env=make)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algo": "a2c"}, "collect_ahead: a2c cannot learn from the data of an older policy"),
        ({"algo": "ppo", "backend": "ray"}, "by ray_mode async"),
    ],
)
def test_what_cannot_be_collected_ahead_is_refused(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        small_config(output_dir=tmp_path, collect_ahead=True, **changes)


def test_an_instance_stays_in_its_process(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, collect_ahead=True, num_envs=1)
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        Session(config, env=gym.make("CartPole-v1"))
