"""Atari: PPO on ALE's C++ vector environment, from pixels to a resumed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import StopAtCheckpoint, differences, train_state, training_rows
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.manager import resume_run

pytest.importorskip("ale_py")


def small_pong(output_dir: Path) -> TrainConfig:
    changes = {
        "num_envs": 2,
        "total_timesteps": 64,
        "checkpoint_interval": 32,
        "log_interval": 1,
        "eval_episodes": 0,
        "output_dir": str(output_dir),
        "algo_kwargs": {"rollout_steps": 8, "update_epochs": 1, "num_minibatches": 2},
    }
    return make_config(merge(load_preset("ppo/pong"), changes))


def test_pong_trains_from_pixels_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The C++ environment hides its state: a checkpoint is a barrier, in the uninterrupted run as well."""
    config = small_pong(tmp_path)
    whole, uninterrupted = train_state(config)
    row = training_rows(whole)[-1]
    assert row["learning_rate"] == pytest.approx(7e-4 * (1 - 48 / 64))  # the preset's, at the step before the last
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert stopped["progress"]["global_step"] == 32
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []
