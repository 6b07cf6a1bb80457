"""Run directories: a place for each run, a lock for the process that writes there, a list of what exists."""

import fcntl
import json
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.files import NO_LINKS, cause_of, naming_failures
from rl_training.experiment.plain import read_yaml_file

MAX_NAME_LENGTH = 100
METRICS_TAIL_BYTES = 65_536
MOST_NAMED = 5
LOCK_POLL_S = 0.1

_log = logging.getLogger(__name__)


def create_run_dir(output_dir: Path, algo: str, env_name: str, seed: int, name: str | None = None) -> Path:
    """Make `<output_dir>/<algo>/<env>/<time>-seed<k>` (or `…/<name>`); no two runs are given the same one."""
    path = run_dir_of(output_dir, algo, env_name, name or f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}")
    with naming_failures(path.parent, ConfigError):
        path.parent.mkdir(parents=True, exist_ok=True)
    candidates = (path if attempt == 1 else path.with_name(f"{path.name}-{attempt}") for attempt in count(1))
    return next(path for path in candidates if _is_created(path))


def run_dir_of(output_dir: Path, algo: str, env_name: str, name: str) -> Path:
    """Where the run of that name lies."""
    return Path(output_dir) / file_name(algo) / file_name(env_name) / file_name(name)


def _is_created(path: Path) -> bool:
    """Make a directory, unless it exists; of two processes that try, one succeeds."""
    with naming_failures(path, ConfigError):
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
    """Held while a process writes to a run; the kernel frees it when the process dies, however it dies.

    A lock that another process has is waited for as long as `patience_s` says.
    """

    def __init__(self, run_dir: Path, *, patience_s: float = 0.0) -> None:
        self.path = Path(run_dir) / ".lock"
        self._patience_s = patience_s
        self._file: TextIO | None = None

    def __enter__(self) -> "RunLock":
        with naming_failures(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | NO_LINKS, 0o666)
            file = open(descriptor, "r+", encoding="ascii", errors="replace")
        try:
            self._lock(file)
            with naming_failures(self.path):
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
        except BaseException:
            file.close()
            raise
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

    def _lock(self, file: TextIO) -> None:
        deadline = time.monotonic() + self._patience_s
        try:
            while not _is_locked(file, last_try=time.monotonic() >= deadline):
                time.sleep(LOCK_POLL_S)
        except BlockingIOError as error:
            raise RLTrainingError(
                f"{self.path.parent} is being written by {self._holder(file)}; "
                "wait for it, stop it, or start another run"
            ) from error
        except OSError as error:  # some network file systems have no locks
            _log.warning("%s cannot be locked (%s): do not write the run twice", self.path.parent, cause_of(error))

    @staticmethod
    def _holder(file: TextIO) -> str:
        file.seek(0)
        pid = file.read().strip()
        return f"process {pid}" if pid else "another process"


def _is_locked(file: TextIO, *, last_try: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if last_try:
            raise
        return False
    return True


def writer_of(run_dir: Path) -> int | None:
    """The process that writes a run now; None where there is none, or where the system does not tell.

    The file says a number, which a stranger may have put there; the kernel says which process has the lock.
    """
    path = Path(run_dir) / ".lock"
    try:
        inode, said = path.stat().st_ino, path.read_text(encoding="ascii", errors="replace").strip()
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    held = [words for words in map(str.split, locks) if words[1:2] == ["FLOCK"]]  # one that waits has an arrow there
    owners = {words[4] for words in held if words[5].rpartition(":")[2] == str(inode)}
    return int(said) if said.isdigit() and said in owners else None


@dataclass(frozen=True)
class RunInfo:
    """A run as its directory describes it; None where that says nothing (yet)."""

    path: Path
    algo: str | None
    env_id: str | None
    seed: int | None
    step: int | None
    return_mean: float | None
    evaluated: float | None  # the mean return of its last evaluation
    finished: bool | None


def list_runs(output_dir: Path) -> list[RunInfo]:
    """All runs under a directory, in the order of their paths."""
    return [_run_info(path) for path in sorted(_run_dirs(Path(output_dir)))]


def find_run(text: str, output_dir: Path) -> Path:
    """The run that is meant by a path, by `latest`, or by a part of its path that no other run has.

    What means no run comes back as the path that it is, for the error of whoever opens it.
    """
    if Path(text).exists():
        return Path(text)
    runs = list(_run_dirs(output_dir))
    if text == "latest":
        return max(runs, key=lambda run: (run / "config.yaml").stat().st_mtime, default=Path(text))
    meant = sorted(run for run in runs if text in str(run.relative_to(output_dir)))
    if len(meant) > 1:
        more = ", …" if len(meant) > MOST_NAMED else ""
        raise CheckpointError(f"{text!r} is part of {', '.join(map(str, meant[:MOST_NAMED]))}{more}; say which")
    return meant[0] if meant else Path(text)


def _run_dirs(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        if "config.yaml" in files:
            subfolders.clear()
            yield Path(folder)


def _run_info(path: Path) -> RunInfo:
    config = _read_config(path / "config.yaml")
    rows = _last_rows(path / "metrics.jsonl")
    step = _last_number(rows, "global_step")
    total_steps = config.get("total_timesteps")
    return RunInfo(
        path=path,
        algo=config.get("algo"),
        env_id=config.get("env_id"),
        seed=config.get("seed"),
        step=None if step is None else int(step),
        return_mean=_last_number(rows, "return_mean"),
        evaluated=_last_number(rows, "eval_return_mean"),
        finished=step >= total_steps if is_number(step) and is_number(total_steps) else None,
    )


def _last_number(rows: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in rows if is_number(row.get(name))), None)


def is_number(value: Any) -> bool:
    """Whether it can be counted and compared; a damaged file may have anything in its place."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _read_config(path: Path) -> Mapping[str, Any]:
    """A run's config; empty if it cannot be read, so that one damaged run does not hide the others."""
    try:
        config = read_yaml_file(path)
    except ConfigError:
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
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
