"""Gumbel MuZero in training: the schedules that planners are known for."""

from contextlib import closing
from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged, small_config
from rl_training.runtime.manager import train_run
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
