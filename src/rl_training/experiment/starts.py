"""`starts.jsonl`: how a run was started and resumed, with which command and which versions."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from rl_training import __version__
from rl_training.experiment.files import naming_failures, open_to_append
from rl_training.experiment.runs import parse_row

STARTS_NAME = "starts.jsonl"
LIBRARIES = ("torch", "gymnasium", "numpy", "pydantic", "safetensors")


def versions() -> dict[str, str]:
    own = {"rl-training": __version__, "python": platform.python_version()}
    return own | {name: metadata.version(name) for name in LIBRARIES}


def note_start(run_dir: Path, step: int) -> None:
    """Adds a line about the process that trains the run from this step on."""
    start = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "global_step": step,
        "command": command(sys.argv),
        "versions": versions(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }
    path = run_dir / STARTS_NAME
    with naming_failures(path), open_to_append(path) as file:
        file.write(json.dumps(start) + "\n")


def command(arguments: list[str]) -> str:
    """The command as one types it: the entry point without its folder, a package by its name."""
    program, *rest = arguments
    path = Path(program)
    started = ["python", "-m", path.parent.name] if path.name == "__main__.py" else [path.name or "python"]
    return shlex.join([*started, *rest])


def read_starts(run_dir: Path) -> list[dict[str, Any]]:
    """The lines about a run's starts; none for a run that has no such file."""
    path = run_dir / STARTS_NAME
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [dict(row) for row in map(parse_row, lines) if row is not None]
