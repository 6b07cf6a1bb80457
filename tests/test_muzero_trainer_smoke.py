"""MuZero in training: the schedules that planners are known for."""

import copy
from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged
from rl_training.experiment.config import make_config
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session


@pytest.mark.parametrize(("control", "start", "end"), [("temperature", 1.0, 0.25), ("reanalyse_fraction", 0.0, 0.5)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("muzero", control, tmp_path, start=start, end=end)


def test_the_learners_own_policy_follows_its_schedules_where_others_act() -> None:
    """Replayed states are searched again by the learner, not by who collects."""
    schedule = {"kind": "linear", "start": 8, "end": 2}
    params = {"num_simulations_schedule": schedule, "learning_starts": 16, "batch_size": 8, "hidden_size": 16}
    config = {"algo": "muzero", "env_id": "CartPole-v1", "num_envs": 2, "total_timesteps": 64, "algo_kwargs": params}
    session = Session(make_config({**config, "eval_episodes": 0}))
    session.collector.policy, session.collector.shares_weights = copy.deepcopy(session.policy), False
    run_training(session)
    assert session.policy.params.num_simulations == session.collector.policy.params.num_simulations == 2
