"""The package as it is shipped: presets inside it, one copy of them, a version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rl_training
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import PRESET_DIR, list_presets, load_preset

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", list_presets())
def test_every_packaged_preset_is_valid(name: str) -> None:
    assert make_config(load_preset(name)).algo == name.partition("/")[0]


@pytest.mark.parametrize(
    "path", sorted(PRESET_DIR.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_packaged_preset_says_how_its_values_were_found(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# Values: ")
    assert first.endswith(".")
    for page in re.findall(r"docs/\S+\.md", first):
        assert path.parent.name in (ROOT / page).read_text().lower()


def test_configs_at_the_root_is_a_link_not_a_copy() -> None:
    assert (ROOT / "configs").is_symlink()
    assert (ROOT / "configs").resolve() == PRESET_DIR.resolve()


def test_presets_resolve_from_any_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_training", "show", "ppo/cartpole"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ})
    assert "env_id: CartPole-v1" in done.stdout


def test_the_version_is_the_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", "--version"], capture_output=True, text=True, check=True
    )
    assert rl_training.__version__ in done.stdout


def test_the_audit_asks_about_the_oldest_versions_that_are_allowed() -> None:
    from benchmarks.audit import floors

    wanted = ["torch>=2.10", "gymnasium[box2d]>=1.2,<2; extra == 'x'", "zensical; extra == 'docs'"]
    assert floors(wanted) == ["gymnasium==1.2", "torch==2.10"]
