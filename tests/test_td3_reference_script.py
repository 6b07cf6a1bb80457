"""The reference script of TD3 runs as a user would run it."""

from pathlib import Path

from conformance import run_reference_script
from rl_training import TD3


def test_the_script_trains_reports_and_saves(tmp_path: Path) -> None:
    output = run_reference_script("td3", tmp_path, "--save", "agent")
    assert "steps: return" in output
    assert TD3.load(tmp_path / "agent").num_timesteps >= 300
