"""EfficientZero in training: the schedules that planners are known for."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged


@pytest.mark.parametrize(("control", "start", "end"), [("temperature", 1.0, 0.25), ("reanalyse_fraction", 0.0, 0.5)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("efficientzero", control, tmp_path, start=start, end=end)
