"""Runs as a library: what a run writes, and how runs are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conformance import small_config, train_state
from rl_training import list_runs
from rl_training.algorithms import PPOLearner
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.runtime.manager import resume_run, run_config
from rl_training.runtime.ppo_trainer import train_ppo


def test_a_run_directory_holds_what_the_design_says(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path, seed=7, loggers=["jsonl", "csv", "tensorboard"]))
    assert run_dir.relative_to(tmp_path).parts[:2] == ("ppo", "CartPole-v1")
    assert run_dir.name.endswith("-seed7")
    names = {path.name for path in run_dir.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "metrics.csv", "tensorboard", "checkpoints"} <= names
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    params = PPOLearner.Params()
    assert config["algo_kwargs"].keys() >= type(params).model_fields.keys() - params.idle().keys()


def test_runs_are_listed_with_their_progress(tmp_path: Path) -> None:
    run_dir, state = train_state(small_config("ppo", tmp_path))
    (found,) = list_runs(tmp_path)
    assert (found.path, found.algo, found.env_id, found.seed) == (run_dir, "ppo", "CartPole-v1", 0)
    assert found.step == state["progress"]["global_step"]
    assert found.finished


def test_the_functional_entry_point_trains_its_own_algorithm_only(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, total_timesteps=64)
    result = train_ppo(config.model_dump())
    assert result.run_dir is not None
    assert run_config(result.run_dir).algo == "ppo"


def test_resuming_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a run directory"):
        resume_run(tmp_path)


def test_all_mistakes_of_a_config_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        make_config({"algo": "ppo", "num_envs": 0, "seeed": 1, "algo_kwargs": {"gama": 1, "vf_coef": -1}})
    told = str(error.value)
    for mistake in ("env_id", "num_envs", "seeed", "'seed'", "gama", "'gamma'", "vf_coef"):
        assert mistake in told


def test_a_schedule_that_leaves_the_bounds_is_refused_before_the_run() -> None:
    schedule = {"kind": "linear", "start": 0.1, "end": -0.1}
    with pytest.raises(ConfigError, match="ent_coef_schedule"):
        make_config({"algo": "ppo", "env_id": "x", "algo_kwargs": {"ent_coef_schedule": schedule}})


def test_mappings_of_keyword_arguments_merge_key_by_key() -> None:
    merged = merge({"algo_kwargs": {"a": 1, "b": 2}, "seed": 1}, {"algo_kwargs": {"b": 3}}, {"seed": 2})
    assert merged == {"algo_kwargs": {"a": 1, "b": 3}, "seed": 2}


def test_a_resolved_config_is_a_fixed_point() -> None:
    config = make_config({"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": {"clip_range_schedule": "cosine"}})
    resolved = config.resolved()
    assert resolved["algo_kwargs"]["clip_coef_schedule"] == "cosine"
    assert make_config(resolved).resolved() == resolved
    assert isinstance(config, TrainConfig)
