"""Packaged presets: `assets/configs/<algo>/<name>.yaml`, known as `<algo>/<name>` from any working directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.config import read_yaml
from rl_training.experiment.registry import REGISTRY, load_plugins

ASSETS = Path(__file__).parent.parent / "assets"
PRESET_DIR = ASSETS / "configs"
SCORES = ASSETS / "scores.json"


def list_presets() -> list[str]:
    return sorted(_preset_files())


def _preset_files() -> dict[str, Path]:
    """The file of each preset; an algorithm from outside of the package has a folder of its own."""
    load_plugins()
    packaged = {path.relative_to(PRESET_DIR).with_suffix("").as_posix(): path for path in PRESET_DIR.glob("*/*.yaml")}
    outside = {row.name: Path(row.presets) for row in REGISTRY.values() if row.presets}
    found = {f"{name}/{path.stem}": path for name, folder in outside.items() for path in folder.glob("*.yaml")}
    return packaged | found


def preset_scores() -> dict[str, dict[str, float]]:
    """The results of presets in the project's measurements, which `make learn` writes."""
    return json.loads(SCORES.read_text())


def load_preset(name: str) -> dict[str, Any]:
    """A packaged preset by name, or a YAML file by path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return read_yaml(path)
    files = _preset_files()
    if name not in files:
        hint = did_you_mean(name, sorted(files))
        raise ConfigError(f"no preset {name!r}; {hint} `rl-training list` shows all; a file ends in .yaml")
    return read_yaml(files[name])
