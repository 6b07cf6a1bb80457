"""The reference script of PPG runs as a user would run it."""

from pathlib import Path

from conformance import run_reference_script
from rl_training import PPG


def test_the_script_trains_reports_and_saves(tmp_path: Path) -> None:
    output = run_reference_script("ppg", tmp_path, "--save", "agent")
    assert "steps: return" in output
    assert PPG.load(tmp_path / "agent").num_timesteps >= 300
