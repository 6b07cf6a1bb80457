"""Run directories: a place for each run, a lock for the process that writes there, a list of what exists."""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import yaml

from rl_training.errors import RLTrainingError

MAX_NAME_LENGTH = 100
METRICS_TAIL_BYTES = 65_536


def create_run_dir(output_dir: Path, algo: str, env_name: str, seed: int, name: str | None = None) -> Path:
    """Make `<output_dir>/<algo>/<env>/<time>-seed<k>` (or `…/<name>`); no two runs are given the same one."""
    parent = Path(output_dir) / file_name(algo) / file_name(env_name)
    parent.mkdir(parents=True, exist_ok=True)
    leaf = file_name(name) if name else f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    candidates = (parent / (leaf if attempt == 1 else f"{leaf}-{attempt}") for attempt in count(1))
    return next(path for path in candidates if _is_created(path))


def _is_created(path: Path) -> bool:
    """Make a directory, unless it exists; of two processes that try, one succeeds."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def file_name(text: str) -> str:
    """A name that every file system takes: `ALE/Pong-v5` becomes `ALE-Pong-v5`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:MAX_NAME_LENGTH].strip("-.") or "unnamed"


_locks_held: set[TextIO] = set()


def _close_inherited_locks() -> None:
    # A forked environment worker that outlives its killed parent would keep the run locked.
    for file in _locks_held:
        file.close()
    _locks_held.clear()


os.register_at_fork(after_in_child=_close_inherited_locks)


class RunLock:
    """Held while a process writes to a run; the kernel frees it when the process dies, however it dies."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / ".lock"
        self._file: TextIO | None = None

    def __enter__(self) -> "RunLock":
        file = self.path.open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder(file)
            file.close()
            raise RLTrainingError(
                f"{self.path.parent} is being written by {holder}; wait for it, stop it, or start another run"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        _locks_held.add(file)
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            _locks_held.discard(self._file)
            self._file.close()
            self._file = None

    @staticmethod
    def _holder(file: TextIO) -> str:
        file.seek(0)
        pid = file.read().strip()
        return f"process {pid}" if pid else "another process"


@dataclass(frozen=True)
class RunInfo:
    """A run as its directory describes it; None where that says nothing (yet)."""

    path: Path
    algo: str | None
    env_id: str | None
    seed: int | None
    step: int | None
    return_mean: float | None
    finished: bool | None


def list_runs(output_dir: Path) -> list[RunInfo]:
    """All runs under a directory, in the order of their paths."""
    return [_run_info(path) for path in sorted(_run_dirs(Path(output_dir)))]


def _run_dirs(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        if "config.yaml" in files:
            subfolders.clear()
            yield Path(folder)


def _run_info(path: Path) -> RunInfo:
    config = _read_config(path / "config.yaml")
    rows = _last_rows(path / "metrics.jsonl")
    step = next((row["global_step"] for row in rows if row.get("global_step") is not None), None)
    total_steps = config.get("total_timesteps")
    return RunInfo(
        path=path,
        algo=config.get("algo"),
        env_id=config.get("env_id"),
        seed=config.get("seed"),
        step=step,
        return_mean=next((row["return_mean"] for row in rows if row.get("return_mean") is not None), None),
        finished=None if step is None or total_steps is None else step >= total_steps,
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    """A run's config; empty if it cannot be read, so that one damaged run does not hide the others."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError):
        return {}
    return config if isinstance(config, dict) else {}


def _last_rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows at the end of a metrics file, the last one first; a line cut short at either side is no row."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - METRICS_TAIL_BYTES))
        lines = file.read().splitlines()
    rows = map(parse_row, reversed(lines))
    return [row for row in rows if row is not None]


def parse_row(line: str | bytes) -> Mapping[str, Any] | None:
    """A line of `metrics.jsonl`, or None for one that a killed process left unfinished."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
