"""PPO in training: the schedules that PPO is known for."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged


@pytest.mark.parametrize(("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("ppo", control, tmp_path, start=start, end=end)
