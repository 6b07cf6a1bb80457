"""EfficientZero in training: the schedules that planners are known for, and its two ways to search."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows
from rl_training.errors import ConfigError


@pytest.mark.parametrize(("control", "start", "end"), [("temperature", 1.0, 0.25), ("reanalyse_fraction", 0.0, 0.5)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("efficientzero", control, tmp_path, start=start, end=end)


def test_with_gumbels_rule_it_trains_and_logs_no_root_noise(tmp_path: Path) -> None:
    run_dir, state = train_state(small_config("efficientzero", tmp_path, algo_kwargs={"search_rule": "gumbel"}))
    assert state
    assert all("temperature" in row and "root_exploration_fraction" not in row for row in training_rows(run_dir))


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        ("gumbel", "root_exploration_fraction_schedule", "linear"),
        ("gumbel", "pb_c_init", 1.0),
        ("puct", "c_scale", 0.1),
    ],
)
def test_the_other_rules_parameters_are_refused(rule: str, key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{key} has no effect with search_rule '{rule}'"):
        small_config("efficientzero", tmp_path, algo_kwargs={"search_rule": rule, key: value})
