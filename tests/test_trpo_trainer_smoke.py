"""TRPO in training: its schedules, and what its rows say of the line search."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows


@pytest.mark.parametrize(
    ("control", "start", "end"), [("target_kl", 0.02, 0.005), ("ent_coef", 0.02, 0.0), ("cg_damping", 0.1, 0.01)]
)
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("trpo", control, tmp_path, start=start, end=end)


def test_the_step_follows_the_bound_that_is_scheduled(tmp_path: Path) -> None:
    schedule = {"kind": "linear", "start": 0.05, "end": 0.001}
    config = small_config("trpo", tmp_path, algo_kwargs={"target_kl_schedule": schedule}, total_timesteps=1024)
    rows = training_rows(train_state(config)[0])
    assert all(row["step_kl"] <= row["target_kl"] + 1e-4 for row in rows)
    assert rows[0]["step_kl"] > 5 * rows[-1]["step_kl"]
    assert all(0.0 <= row["line_search_accepted"] <= 1.0 for row in rows)
