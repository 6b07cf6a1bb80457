"""What holds for every algorithm, as functions: the conformance suite and the per-algorithm files call them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.presets import list_presets, load_preset
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import Session
from rl_training.tools.conformance import differences, leaves

__all__ = ["differences", "leaves"]  # tests find them here, and authors of algorithms in the package

ROOT = Path(__file__).parent.parent

SLOW_TWINS = ("efficientzero", "scalezero")  # of MuZero and Gumbel MuZero, which take seconds

# The planners' replay wraps within the test, and its last state is searched again.
SMALL_PLANNER: dict[str, Any] = {
    "num_simulations": 4,
    "rollout_steps": 8,
    "batch_size": 16,
    "learning_starts": 64,
    "replay_capacity": 200,
    "replay_ratio": 0.25,
    "reanalyse_fraction": 0.25,
    "latent_size": 16,
    "hidden_size": 16,
    "hidden_sizes": [16],
}

# The replay wraps within the test.
SMALL_OFF_POLICY: dict[str, Any] = {
    "rollout_steps": 8,
    "batch_size": 16,
    "learning_starts": 64,
    "replay_capacity": 200,
    "replay_ratio": 0.5,
    "hidden_sizes": [16],
}

SHORT_EPISODES: dict[str, Any] = {"num_envs": 2, "wrappers": [{"time_limit": 30}]}

# What makes an algorithm's preset small enough for a test of seconds.
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 2, "algo_kwargs": {"rollout_steps": 32, "update_epochs": 2, "num_minibatches": 2}},
    "a2c": {"num_envs": 2, "algo_kwargs": {"rollout_steps": 16}},
    "trpo": {"num_envs": 2, "algo_kwargs": {"rollout_steps": 32, "critic_updates": 2}},
    "recurrent_ppo": {"num_envs": 2, "algo_kwargs": {"rollout_steps": 32, "update_epochs": 2, "num_minibatches": 2}},
    "gail": {
        "num_envs": 2,
        "algo_kwargs": {
            "rollout_steps": 32,
            "update_epochs": 2,
            "num_minibatches": 2,
            "discriminator_updates": 2,
            "discriminator_batch": 32,
        },
    },
    "impala": {"num_envs": 4, "algo_kwargs": {"rollout_steps": 16, "num_minibatches": 2, "update_epochs": 2}},
    "appo": {
        "num_envs": 4,
        "algo_kwargs": {"rollout_steps": 16, "num_minibatches": 2, "update_epochs": 2, "target_update_interval": 3},
    },
    # Three rollouts to a phase, four to a checkpoint: a run is resumed in the middle of a phase.
    "ppg": {
        "num_envs": 2,
        "algo_kwargs": {
            "rollout_steps": 16,
            "update_epochs": 2,
            "num_minibatches": 2,
            "policy_phases": 3,
            "aux_epochs": 2,
            "aux_minibatches": 2,
        },
    },
    "dreamer": {
        "num_envs": 2,
        "algo_kwargs": {
            "rollout_steps": 16,
            "batch_size": 4,
            "sequence_length": 8,
            "train_ratio": 1,
            "learning_starts": 64,
            "replay_capacity": 400,
            "horizon": 5,
        },
    },
    "muzero": {"num_envs": 2, "algo_kwargs": SMALL_PLANNER},
    # Means in place of the preset's distributions, since kernels know those alone.
    "dqn": {
        "num_envs": 2,
        "algo_kwargs": {
            **SMALL_OFF_POLICY,
            "distribution": None,
            "v_min": None,
            "v_max": None,
            "priority_alpha": 0.6,
            "target_update_interval": 3,
        },
    },
    "sac": {**SHORT_EPISODES, "algo_kwargs": {**SMALL_OFF_POLICY, "priority_alpha": 0.6, "random_steps": 32}},
    "td3": {**SHORT_EPISODES, "algo_kwargs": {**SMALL_OFF_POLICY, "priority_alpha": 0.6, "random_steps": 32}},
    "gumbel_muzero": {"num_envs": 2, "algo_kwargs": SMALL_PLANNER},
    # The search that has all of its controls; the preset's is Gumbel's, with a constant of its own.
    "efficientzero": {
        "num_envs": 2,
        "algo_kwargs": {**SMALL_PLANNER, "lstm_size": 8, "projection_size": 16, "search_rule": "puct", "c_scale": None},
    },
    # Adapters that begin within the test: a run is resumed in their stage.
    "scalezero": {"num_envs": 2, "algo_kwargs": {**SMALL_PLANNER, "adapter_stages": 1, "stage_updates": 10}},
}


def preset_of(algo: str) -> str:
    """The algorithm's CartPole preset, or its Pendulum preset where Box actions are what it is for."""
    task = "pendulum" if algo in ("sac", "td3") else "cartpole"
    return next(name for name in list_presets() if name.startswith(f"{algo}/{task}"))


def small_config(
    algo: str, output_dir: Path, *, algo_kwargs: dict[str, Any] | None = None, **changes: Any
) -> TrainConfig:
    """A few hundred steps of the algorithm's preset."""
    preset = load_preset(preset_of(algo))
    # A schedule of the preset would be a second spelling beside the test's own.
    preset["algo_kwargs"] = {
        k: v for k, v in preset.get("algo_kwargs", {}).items() if not k.endswith(("_schedule", "_warmup_steps"))
    }
    base = {"output_dir": str(output_dir), "total_timesteps": 256, "eval_episodes": 2, "log_interval": 1}
    merged = merge(preset, base, SMALL[algo], changes, {"algo_kwargs": algo_kwargs or {}})
    given = {key: value for key, value in merged["algo_kwargs"].items() if value is not None}
    return make_config({**merged, "algo_kwargs": given})


class StopAtCheckpoint(Callback):
    """Ends the run with its first checkpoint, as a kill right after it would."""

    def on_checkpoint(self, session: Session) -> None:
        session.request_stop("the test asked")


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def training_rows(run_dir: Path) -> list[dict[str, Any]]:
    return [row for row in rows_of(run_dir) if "gradient_steps" in row]


def train_state(config: TrainConfig, **options: Any) -> tuple[Path, dict[str, Any]]:
    """(run directory, state of its latest checkpoint)."""
    run_dir = train_run(config, **options).run_dir
    assert run_dir is not None
    return run_dir, load_checkpoint(run_dir)


def run_reference_script(algo: str, tmp_path: Path, *flags: str) -> str:
    """Runs `examples/<algo>_<task>_reference.py` as a user would, elsewhere, with a small budget."""
    (script,) = (ROOT / "examples").glob(f"{algo}_[cp]*_reference.py")
    command = [sys.executable, str(script), "--total-timesteps", "300", "--eval-episodes", "1", *flags]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_schedule_is_applied_and_logged(algo: str, control: str, tmp_path: Path, *, start: float, end: float) -> None:
    """The metric follows the schedule from its start, and every alias's spelling would have done the same."""
    schedule = {"kind": "linear", "start": start, "end": end}
    config = small_config(algo, tmp_path, algo_kwargs={f"{control}_schedule": schedule}, total_timesteps=512)
    run_dir, _ = train_state(config)
    rows = training_rows(run_dir)
    assert rows[0][control] == pytest.approx(start)
    used_at = [0, *(row["global_step"] for row in rows[:-1])]
    for step, row in zip(used_at, rows, strict=True):
        assert row[control] == pytest.approx(start + (end - start) * min(step / 512, 1.0))
    assert len({row[control] for row in rows}) > 1


def trials_in(study: Path) -> list[tuple[int, str]]:
    """The numbers and states of the trials in a study's folder."""
    with sqlite3.connect(study / "study.db") as database:
        return database.execute("select number, state from trials order by number").fetchall()
