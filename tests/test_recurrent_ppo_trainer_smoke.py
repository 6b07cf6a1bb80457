"""Recurrent PPO in training: PPO's schedules, and a state that is carried over checkpoints."""

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
from rl_training.runtime.manager import resume_run


@pytest.mark.parametrize(("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("recurrent_ppo", control, tmp_path, start=start, end=end)


def test_a_resumed_run_goes_on_with_the_memory_it_had(tmp_path: Path) -> None:
    algo_kwargs = {"cell": "gru", "sequence_length": 8}
    config = small_config("recurrent_ppo", tmp_path, checkpoint_interval=128, algo_kwargs=algo_kwargs)
    _, uninterrupted = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert (stopped["collector"]["state"] != 0).any()
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []
