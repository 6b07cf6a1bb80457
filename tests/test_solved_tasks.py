"""Tasks that reach their target returns: a smaller share of windows, and stages of adapters that begin by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import SMALL_PLANNER, StopAtCheckpoint, differences, train_state, training_rows
from rl_training.data.rollout import Episode
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import make_config
from rl_training.runtime.manager import resume_run
from rl_training.runtime.scalezero_trainer import split_by
from rl_training.runtime.solved_tasks import RECENT_EPISODES, SolvedTasks, targets_of

TASKS = ["support:ContextualBandit", "support:IdentityEnv"]


def episodes(task: str, paid: float, count: int = RECENT_EPISODES) -> list[Episode]:
    return [Episode(paid, 1, task)] * count


def test_a_task_is_solved_while_its_recent_episodes_reach_the_target() -> None:
    solved = SolvedTasks({"a": 1.0, "b": 1.0})
    solved.add(episodes("a", 1.0, RECENT_EPISODES - 1), stage=0)
    assert not solved.is_solved("a")  # too few to tell
    solved.add(episodes("a", 1.0, 1) + episodes("c", 9.0), stage=0)
    assert [solved.is_solved(task) for task in "abc"] == [True, False, False]
    solved.add(episodes("a", 0.0, 1), stage=1)
    assert solved.count() == 0
    assert solved.first_solved == {"a": 0}


def test_a_stage_ends_with_a_fair_part_of_the_unsolved_tasks() -> None:
    """Four tasks in two further stages: ⌈4 / 2⌉ end the first, then ⌈2 / 1⌉ the second; no third one can begin."""
    solved = SolvedTasks(dict.fromkeys("abcd", 1.0))
    assert not solved.ends_stage(0, remaining=2)
    solved.add(episodes("a", 1.0), stage=0)
    assert not solved.ends_stage(0, remaining=2)
    solved.add(episodes("b", 1.0), stage=0)
    assert solved.ends_stage(0, remaining=2)
    assert not solved.ends_stage(1, remaining=1)  # what the last stage solved does not count again
    solved.add(episodes("c", 1.0) + episodes("d", 1.0), stage=1)
    assert solved.ends_stage(1, remaining=1)
    assert not solved.ends_stage(2, remaining=0)
    assert not solved.ends_stage(2, remaining=1)  # nothing is left to solve


def test_a_batch_is_split_by_shares() -> None:
    assert split_by(np.array([1.0, 1.0, 1.0]), 8).tolist() == [3, 3, 2]
    assert split_by(np.array([0.25, 1.0]), 10).tolist() == [2, 8]
    assert split_by(np.array([0.25, 1.0]), 11).tolist() == [3, 8]
    assert split_by(np.array([0.0, 1.0, 1.0]), 5).tolist() == [0, 3, 2]
    assert split_by(np.array([0.0, 0.0]), 4).tolist() == [2, 2]
    assert all(split_by(np.ones(n), 3 * n).tolist() == [3] * n for n in range(1, 60))


def test_targets_are_of_all_tasks_or_of_those_that_are_named() -> None:
    assert targets_of(["a", "b"], 3.0) == {"a": 3.0, "b": 3.0}
    assert targets_of(["a", "b"], {"b": 2.0}) == {"b": 2.0}
    with pytest.raises(ConfigError, match=r"target_returns: there is no task 'c'; the tasks are a, b"):
        targets_of(["a", "b"], {"c": 2.0})
    with pytest.raises(ConfigError, match="one task takes a number"):
        targets_of([""], {"c": 2.0})


def small_run(tmp_path: Path, **kwargs: Any) -> Any:
    """The first task is solved at once by a target that everybody reaches."""
    targets = {TASKS[0]: -1.0, TASKS[1]: 100.0}
    sizes = {"num_heads": 1, "num_experts": 2, "batch_size": 10, "target_returns": targets, "solved_share": 0.25}
    base = {"algo": "scalezero", "tasks": TASKS, "num_envs": 4, "total_timesteps": 400, "eval_episodes": 0}
    files = {"output_dir": str(tmp_path), "log_interval": 1, "checkpoint_interval": 200}
    return make_config({**base, **files, "algo_kwargs": SMALL_PLANNER | sizes | kwargs})


def test_a_solved_task_gets_fewer_windows_and_resume_is_exact(tmp_path: Path) -> None:
    config = small_run(tmp_path, adapter_stages=2, adapter_rank=2, stage_updates=10_000)
    run_dir, whole = train_state(config)
    rows = [row for row in training_rows(run_dir) if f"window_share/{TASKS[0]}" in row]
    assert rows[-1][f"window_share/{TASKS[0]}"] == pytest.approx(0.2)
    assert rows[-1]["solved_tasks"] == 1
    # ⌈2 unsolved / 2 stages⌉ = 1 task begins stage 1 long before 10,000 updates; ⌈1 / 1⌉ = 1 more never comes
    assert rows[-1]["adapter_stage"] == 1
    stopped, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(stopped)
    assert differences(whole, load_checkpoint(stopped)) == []


def test_without_targets_all_tasks_have_equal_shares(tmp_path: Path) -> None:
    run_dir, state = train_state(small_run(tmp_path, target_returns=None))
    row = training_rows(run_dir)[-1]
    assert row[f"window_share/{TASKS[0]}"] == row[f"window_share/{TASKS[1]}"] == 0.5
    assert "solved_tasks" not in row
    assert "solved_tasks" not in state["learner"]


def test_an_unknown_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no task 'CartPole-v1'"):
        train_state(small_run(tmp_path, target_returns={"CartPole-v1": 450.0}))
