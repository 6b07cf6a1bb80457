"""Resume, evaluate and predict from what lies on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conformance import StopAtCheckpoint, differences, small_config, train_state, training_rows
from rl_training import PPO
from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.experiment.checkpointing import CheckpointStore, load_checkpoint
from rl_training.experiment.runs import RunLock
from rl_training.runtime.manager import resume_run
from rl_training.runtime.workflows import evaluate_checkpoint, load_session
from support import HiddenWalk, ProtocolWalk


@pytest.mark.parametrize("env", [HiddenWalk, ProtocolWalk])
def test_resume_is_exact_whether_or_not_an_environment_offers_its_state(env: type, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, backend="sync", checkpoint_interval=128, total_timesteps=512)
    _, uninterrupted = train_state(config, env=env)
    run_dir, _ = train_state(config, env=env, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir, env=env)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"backend": "sync"},
        {"env_id": "LunarLander-v3"},
        {"env_id": "Pendulum-v1", "wrappers": [{"frame_stack": 2}]},
        {"algo_kwargs": {"normalize_obs": True, "normalize_reward": True}},
        {"eval_interval": 96},
    ],
    ids=str,
)
def test_resume_is_exact_with(changes: dict, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, checkpoint_interval=128, **changes)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_a_schedule_goes_on_where_it_was(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, checkpoint_interval=128, algo_kwargs={"learning_rate_schedule": "linear"})
    whole, _ = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    expected = [row["learning_rate"] for row in training_rows(whole)]
    assert [row["learning_rate"] for row in training_rows(run_dir)] == expected
    assert expected[0] > expected[-1]


@pytest.mark.parametrize(("stretch", "rate_at_the_end"), [(False, 0.0), (True, 0.0005)])
def test_a_larger_budget_keeps_the_old_horizon_unless_asked(
    stretch: bool, rate_at_the_end: float, tmp_path: Path
) -> None:
    # 1e-3 falling to 0 over 256 steps; resumed to 512. Stretched, the update that starts at 256 uses half of it.
    kwargs = {"learning_rate": 0.001, "learning_rate_schedule": "linear"}
    run_dir, _ = train_state(small_config("ppo", tmp_path, backend="sync", algo_kwargs=kwargs))
    resume_run(run_dir, total_timesteps=512, stretch_schedules=stretch)
    row = next(row for row in training_rows(run_dir) if row["global_step"] > 256)
    assert row["learning_rate"] == pytest.approx(rate_at_the_end)


def test_a_run_directory_can_be_moved(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path / "here"))
    moved = Path(shutil.move(run_dir, tmp_path / "there"))
    assert len(evaluate_checkpoint(moved, episodes=2).returns) == 2


def test_best_and_numbered_checkpoints_can_be_chosen(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path, eval_interval=64, checkpoint_interval=64))
    steps = CheckpointStore(run_dir).steps()
    assert load_session(run_dir, which=steps[0]).progress.global_step == steps[0]
    assert load_session(run_dir, which="best").progress.best_return is not None
    with pytest.raises(CheckpointError, match="there are the steps"):
        load_session(run_dir, which=7)


def test_a_managed_agent_loads_a_run(tmp_path: Path) -> None:
    run_dir, state = train_state(small_config("ppo", tmp_path))
    assert PPO.load(run_dir).num_timesteps == state["progress"]["global_step"]


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path))
    with RunLock(run_dir), pytest.raises(RLTrainingError, match="is being written by"):
        resume_run(run_dir, total_timesteps=1000)


def test_a_damaged_checkpoint_is_refused_and_an_older_one_named(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path, checkpoint_interval=64))
    newest = CheckpointStore(run_dir).latest()
    assert newest is not None
    with (newest / "tensors.safetensors").open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\xff\xff")
    with pytest.raises(CheckpointError, match="intact and can be used"):
        resume_run(run_dir)
