"""PPO in training: the schedules that PPO is known for."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged, differences, small_config, train_state
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config, merge


@pytest.mark.parametrize(("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("ppo", control, tmp_path, start=start, end=end)


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "trpo"])
def test_a_batch_size_means_the_same_as_the_minibatches_that_it_gives(algo: str, tmp_path: Path) -> None:
    """2 environments with 32 rows each: 4 minibatches of 16."""
    kwargs = {"rollout_steps": 32, "update_epochs": 2} | ({"sequence_length": 8} if algo == "recurrent_ppo" else {})
    kwargs = {"rollout_steps": 32, "critic_updates": 2} if algo == "trpo" else kwargs
    base = small_config(algo, tmp_path, backend="sync", total_timesteps=128).model_dump() | {"algo_kwargs": kwargs}
    by_number, by_size = (
        train_state(make_config(merge(base, {"algo_kwargs": choice})))[1]
        for choice in ({"num_minibatches": 4}, {"batch_size": 16})
    )
    assert differences(by_number["learner"], by_size["learner"]) == []


def test_a_batch_size_and_a_number_of_minibatches_are_refused_together() -> None:
    both = {"batch_size": 64, "num_minibatches": 4}
    with pytest.raises(ConfigError, match="num_minibatches has no effect beside batch_size"):
        make_config({"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": both})


def test_a_batch_size_of_a_later_layer_takes_the_place_of_the_number_of_minibatches() -> None:
    preset, flags = {"algo_kwargs": {"num_minibatches": 4, "gamma": 0.9}}, {"algo_kwargs": {"batch_size": 64}}
    assert merge(preset, flags) == {"algo_kwargs": {"gamma": 0.9, "batch_size": 64}}


def test_a_resolved_config_with_a_batch_size_reads_back() -> None:
    config = make_config({"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": {"batch_size": 64}})
    assert make_config(config.resolved()).resolved() == config.resolved()
