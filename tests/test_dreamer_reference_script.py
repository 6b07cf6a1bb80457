"""The reference script of Dreamer runs as a user would run it."""

from pathlib import Path

from conformance import run_reference_script


def test_the_script_trains_and_reports(tmp_path: Path) -> None:
    assert "steps: return" in run_reference_script("dreamer", tmp_path)
