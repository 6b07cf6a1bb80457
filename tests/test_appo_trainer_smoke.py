"""APPO in training: its schedules, and a clip that is alive."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows


@pytest.mark.parametrize(("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("appo", control, tmp_path, start=start, end=end)


@pytest.mark.parametrize(("epochs", "alive"), [(4, True), (1, False)])
def test_the_clip_clips_with_several_passes_and_is_dead_with_one(epochs: int, alive: bool, tmp_path: Path) -> None:
    kwargs = {"update_epochs": epochs, "num_minibatches": 1, "learning_rate": 3e-3}
    run_dir, _ = train_state(small_config("appo", tmp_path, total_timesteps=2_000, algo_kwargs=kwargs))
    fractions = [row["clip_fraction"] for row in training_rows(run_dir)]
    assert (max(fractions) > 0.01) == alive
