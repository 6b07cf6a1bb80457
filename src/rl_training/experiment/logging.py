"""Where the rows of a run go: JSON lines, CSV, TensorBoard, and the trackers."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from rl_training.errors import ConfigError, did_you_mean, import_extra
from rl_training.experiment.files import open_to_append, replacing
from rl_training.experiment.rows import STEP_KEY, Row, Value, scalars
from rl_training.experiment.runs import is_number, parse_row
from rl_training.experiment.trackers import TRACKERS
from rl_training.naming import PYTHON_PREFIX, ask_again, import_named, names_code

NAMES = ("jsonl", "csv", "tensorboard", *TRACKERS)
JSONL_NAME, CSV_NAME, TENSORBOARD_NAME = "metrics.jsonl", "metrics.csv", "tensorboard"


@runtime_checkable
class Logger(Protocol):
    """Takes a row of metrics at a time; what was logged survives the process."""

    def log(self, row: Row, step: int) -> None: ...

    def close(self) -> None: ...


class JsonlLogger:
    """A line of strict JSON per row: what is not finite is written as null."""

    def __init__(self, path: Path) -> None:
        self._file = open_to_append(Path(path))

    def log(self, row: Row, step: int) -> None:
        values = {name: _json_value(value) for name, value in {STEP_KEY: step, **row}.items()}
        self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class CsvLogger:
    """A table whose header grows: a row with a new name has the file rewritten, line by line, with one more column."""

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        self._columns = _csv_header(self._path)
        self._file = open_to_append(self._path)

    def log(self, row: Row, step: int) -> None:
        values: Row = {STEP_KEY: step, **row}
        new = [name for name in values if name not in self._columns]
        if new:
            self._widen(new)
        _csv_writer(self._file).writerow([values.get(name) for name in self._columns])
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _widen(self, new: list[str]) -> None:
        self._file.flush()
        columns = self._columns + new
        with _rewriting(self._path) as (old, rewritten):
            writer = _csv_writer(rewritten)
            writer.writerow(columns)
            old_rows = _csv_rows(old)
            next(old_rows, None)
            writer.writerows(row + [""] * (len(columns) - len(row)) for row in old_rows)
        self._columns = columns
        self._file.close()
        self._file = open_to_append(self._path)


class TensorBoardLogger:
    """Numbers as TensorBoard scalars, under `train/` unless their name has a group."""

    def __init__(self, directory: Path, *, purge_step: int | None = None) -> None:
        tensorboard = import_extra("torch.utils.tensorboard", extra="tensorboard")
        self._writer = tensorboard.SummaryWriter(str(directory), purge_step=purge_step)

    def log(self, row: Row, step: int) -> None:
        for name, number in scalars(row).items():
            self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        self._writer.close()


def check_loggers(loggers: Iterable[Any]) -> None:
    """Refuses what is neither a known name, nor the name of code, nor a logger; nothing is imported."""
    for logger in loggers:
        if isinstance(logger, str):
            if not (names_code(logger) or logger.startswith(PYTHON_PREFIX) or logger in NAMES):
                raise ConfigError(f"unknown logger {logger!r}; {did_you_mean(logger, NAMES)}")
        elif not isinstance(logger, Logger):
            raise ConfigError(f"loggers: {logger!r} has no log(row, step) and close(), as a logger must")


def import_loggers(loggers: Iterable[Any]) -> list[Any]:
    """The loggers with what a name stands for in its place; `module:name` is called with the run's directory."""
    found = list(dict.fromkeys(logger for logger in loggers if isinstance(logger, str)))
    for name in found:
        if name.startswith(PYTHON_PREFIX):
            raise ask_again("the logger", name, "loggers=")
        if name == "tensorboard":
            import_extra("torch.utils.tensorboard", extra="tensorboard")
        if name in TRACKERS:
            TRACKERS[name].library()
    code = [import_named(name, "the logger") if names_code(name) else name for name in found]
    return code + [logger for logger in loggers if not isinstance(logger, str)]


def open_loggers(loggers: Iterable[Any], run_dir: Path, *, resume_step: int | None) -> list[Logger]:
    """The loggers of a run; one that resumes at a step forgets the rows that a killed process logged after it."""
    run_dir = Path(run_dir)
    purge_step = None if resume_step is None else resume_step + 1
    makers: dict[str, Callable[[], Logger]] = {
        "jsonl": lambda: JsonlLogger(run_dir / JSONL_NAME),
        "csv": lambda: CsvLogger(run_dir / CSV_NAME),
        "tensorboard": lambda: TensorBoardLogger(run_dir / TENSORBOARD_NAME, purge_step=purge_step),
        **{name: partial(tracker, run_dir) for name, tracker in TRACKERS.items()},
    }
    check_loggers(loggers)
    chosen = import_loggers(loggers)
    if resume_step is not None:
        truncate_after(run_dir, resume_step)
    with ExitStack() as close_on_error:
        opened = [_closed_by(close_on_error, _opened(logger, makers, run_dir)) for logger in chosen]
        close_on_error.pop_all()
    return opened


def _opened(logger: Any, makers: Mapping[str, Callable[[], Logger]], run_dir: Path) -> Logger:
    """A known name is made by its maker; other code is called with the run's directory, unless it is a logger."""
    if isinstance(logger, str):
        return makers[logger]()
    opened = logger(run_dir) if isinstance(logger, type) or not isinstance(logger, Logger) else logger
    check_loggers([opened])
    return opened


def truncate_after(run_dir: Path, step: int) -> None:
    """Drop the rows later than `step`, and those that a killed process left unfinished, from the run's files."""
    for name, keep_rows in ((JSONL_NAME, _keep_jsonl_rows), (CSV_NAME, _keep_csv_rows)):
        path = Path(run_dir) / name
        if path.is_file():
            with _rewriting(path) as (old, rewritten):
                keep_rows(old, rewritten, step)


def _keep_jsonl_rows(old: TextIO, rewritten: TextIO, step: int) -> None:
    for line in old:
        row = parse_row(line) if line.endswith("\n") else None
        # A damaged row has no step that could be told; it must not keep a good checkpoint from being resumed.
        if row is not None and is_number(row.get(STEP_KEY)) and row[STEP_KEY] <= step:
            rewritten.write(line)


def _keep_csv_rows(old: TextIO, rewritten: TextIO, step: int) -> None:
    writer = _csv_writer(rewritten)
    rows = _csv_rows(old)
    columns = next(rows, [])
    if STEP_KEY not in columns:
        return
    writer.writerow(columns)
    step_column = columns.index(STEP_KEY)
    writer.writerows(row for row in rows if len(row) == len(columns) and _number(row[step_column]) <= step)


def _csv_rows(file: TextIO) -> Iterator[list[str]]:
    """The rows of whole lines; one that cannot be read is left out."""
    rows = csv.reader(line for line in file if line.endswith("\n"))
    while True:
        try:
            yield next(rows)
        except csv.Error:
            continue
        except StopIteration:
            return


def _number(text: str) -> float:
    """Reads a number; text of a damaged row counts as later than any step."""
    try:
        number = float(text)
    except ValueError:
        return math.inf
    return math.inf if math.isnan(number) else number


@contextmanager
def _rewriting(path: Path) -> Iterator[tuple[TextIO, TextIO]]:
    """The old text and a new one that takes its place, at once, when the block ends without an error."""
    with path.open(encoding="utf-8", errors="replace", newline="") as old, replacing(path) as rewritten:
        yield old, rewritten


def _csv_header(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return next(_csv_rows(file), [])


def _csv_writer(file: TextIO):  # type: ignore[no-untyped-def]  # the csv module does not name its writer's type
    return csv.writer(file, lineterminator="\n")


def _json_value(value: object) -> Value:
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    raise TypeError(f"cannot log {value!r} of type {type(value).__name__}; log a number or a str")


def _closed_by(stack: ExitStack, logger: Logger) -> Logger:
    stack.callback(logger.close)
    return logger
