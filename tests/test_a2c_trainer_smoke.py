"""A2C in training: its schedules."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged


@pytest.mark.parametrize(("control", "start", "end"), [("ent_coef", 0.02, 0.0), ("learning_rate", 1e-3, 1e-4)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("a2c", control, tmp_path, start=start, end=end)
