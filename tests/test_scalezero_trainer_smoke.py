"""ScaleZero in training: the schedules that planners are known for, and several tasks in one run."""

from pathlib import Path

import pytest
import torch

from conformance import SMALL_PLANNER, assert_schedule_is_applied_and_logged, rows_of, train_state, training_rows
from rl_training import ScaleZero
from rl_training.cli import main
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset
from rl_training.tools.curves import find_runs
from rl_training.tools.experts import expert_tables
from support import TruncationEnv
from test_muzero_update import QUICK


@pytest.mark.parametrize(("control", "start", "end"), [("temperature", 1.0, 0.25), ("reanalyse_fraction", 0.0, 0.5)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("scalezero", control, tmp_path, start=start, end=end)


def test_the_classic_preset_trains_three_tasks_in_one_model(tmp_path: Path) -> None:
    preset = load_preset("scalezero/classic")
    small = {"total_timesteps": 600, "num_envs": 6, "eval_episodes": 6, "log_interval": 1, "algo_kwargs": SMALL_PLANNER}
    run_dir, _ = train_state(make_config({**preset, **small, "output_dir": str(tmp_path)}))
    row = training_rows(run_dir)[-1]
    assert sum(row[f"expert_use/0.{expert}"] for expert in range(4)) == pytest.approx(1.0)
    for task in preset["tasks"]:
        assert sum(row[f"expert_use/1.{expert}/{task}"] for expert in range(4)) == pytest.approx(1.0)
    pytest.importorskip("matplotlib")
    picture = tmp_path / "experts.svg"
    assert main(["plot", str(run_dir), "--what", "experts", "--output", str(picture)]) == 0
    assert picture.stat().st_size > 1000
    names, tables = expert_tables(find_runs([run_dir])[0])
    assert names == sorted(preset["tasks"])
    assert [table.shape for table in tables] == [(3, 4), (3, 4)]
    assert {"return_mean/CartPole-v1", "balance_loss", "latent_loss"} <= row.keys()
    assert {f"eval_return_mean/{task}" for task in preset["tasks"]} <= rows_of(run_dir)[-1].keys()


@pytest.mark.slow
def test_two_tasks_are_learned_at_once() -> None:
    tasks = ["support:ContextualBandit", "support:IdentityEnv"]
    agent = ScaleZero(tasks=tasks, num_envs=8, num_heads=1, num_experts=2, **QUICK)
    agent.train(1_500)
    scores = agent.evaluate(episodes=32)
    assert scores[f"return_mean/{tasks[0]}"] == 1.0
    assert scores[f"return_mean/{tasks[1]}"] == 8.0


@pytest.mark.slow
def test_a_time_limit_is_not_a_death() -> None:
    """Every state is worth 1 / (1 - gamma) = 5; with the ends taken for deaths the mean over an episode is 3.2."""
    changes = {"gamma": 0.8, "n_steps": 10, "support_size": 5, "reanalyse_fraction": 0.5, "num_simulations": 2}
    agent = ScaleZero(TruncationEnv, **{**QUICK, **changes})
    agent.train(1_000)
    assert 4.4 < agent.policy.values(torch.ones(1, 1)).item() < 5.4
