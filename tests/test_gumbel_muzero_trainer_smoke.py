"""Gumbel MuZero in training: the schedules that planners are known for."""

from contextlib import closing
from pathlib import Path

import pytest

from conformance import (
    StopAtCheckpoint,
    assert_schedule_is_applied_and_logged,
    differences,
    small_config,
    train_state,
)
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run, train_run
from rl_training.runtime.workflows import load_session


@pytest.mark.parametrize(("control", "start", "end"), [("temperature", 1.0, 0.25), ("reanalyse_fraction", 0.0, 0.5)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("gumbel_muzero", control, tmp_path, start=start, end=end)


def test_a_loaded_policy_acts_by_the_schedule(tmp_path: Path) -> None:
    schedule = {"num_simulations_schedule": {"kind": "linear", "start": 2, "end": 6}}
    result = train_run(small_config("gumbel_muzero", tmp_path, algo_kwargs=schedule))
    assert result.run_dir is not None
    with closing(load_session(result.run_dir)) as session:
        assert session.policy.params.num_simulations == 6


def test_noise_that_is_kept_survives_a_checkpoint(tmp_path: Path) -> None:
    config = small_config(
        "gumbel_muzero", tmp_path, checkpoint_interval=100, algo_kwargs={"noise_persistence": 0.9}, env_id="CartPole-v1"
    )
    _, whole = train_state(config)
    stopped, state = train_state(config, callbacks=[StopAtCheckpoint()])
    assert state["collector"]["state"].shape[1] == 2  # the noise of both actions
    resume_run(stopped)
    assert differences(whole, load_checkpoint(stopped)) == []
