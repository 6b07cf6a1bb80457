"""When the disk, or the machine, refuses: one line with the path and the cause, and nothing half-written."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conformance import differences, small_config, train_state, training_rows
from rl_training import resume_run
from rl_training.cli import main
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment import checkpointing
from rl_training.experiment.checkpointing import CheckpointStore, load_checkpoint
from rl_training.experiment.logging import CsvLogger, JsonlLogger
from rl_training.experiment.runs import RunLock
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import Session


def full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith((".tmp-", ".old-"))]


def test_an_output_directory_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("")
    code = main(["train", "ppo", "--env", "CartPole-v1", "--output-dir", str(tmp_path / "runs"), "--display", "none"])
    told = capsys.readouterr().err.strip()
    assert code == 2
    assert told.startswith(f"error: cannot write {tmp_path / 'runs'}")
    assert told.endswith("Not a directory")


def test_a_directory_that_must_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match=r"cannot write .*runs.*: Permission denied"):
        train_run(small_config("ppo", tmp_path / "runs"))


def test_a_checkpoint_that_does_not_fit_is_tried_again_after_pruning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    for step in (1, 2, 3):
        store.save(step, {"x": step})
    store.mark_best(2)
    real, sizes = checkpointing._write_files, []

    def disk_for_two(*arguments: Any) -> None:
        sizes.append(store.steps())
        if len(store.steps()) > 2:
            full_disk()
        real(*arguments)

    monkeypatch.setattr(checkpointing, "_write_files", disk_for_two)
    store.save(4, {"x": 4})
    assert sizes == [[1, 2, 3], [2, 3]]  # the best and the latest are kept
    assert store.load()["x"] == 4
    assert leftovers(tmp_path) == []


def test_a_checkpoint_that_never_fits_ends_the_run_with_one_line_and_the_last_one_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("ppo", tmp_path, checkpoint_interval=64)
    _, whole = train_state(config)

    class DiskFills(Callback):
        def on_checkpoint(self, session: Session) -> None:
            monkeypatch.setattr(checkpointing, "save_file", full_disk)

    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*/step-\d+: No space left on device"):
        train_run(config, callbacks=[DiskFills()])
    monkeypatch.undo()
    run = max(tmp_path.glob("ppo/*/*"), key=lambda path: path.stat().st_ctime)
    assert leftovers(run) == []
    resume_run(run)
    assert differences(whole, load_checkpoint(run)) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_system_call_is_told_in_one_line(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"x": 1})

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CheckpointError, match="Input/output error"):
        store.save(2, {"x": 2})
    monkeypatch.undo()
    assert store.load()["x"] == 1
    assert store.steps() == [1]


def test_metrics_that_cannot_be_written_do_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = JsonlLogger.log, iter(range(1000))

    def fails_twice(self: JsonlLogger, row: Any, step: int) -> None:
        if next(calls) in (1, 2):
            full_disk()
        real(self, row, step)

    monkeypatch.setattr(JsonlLogger, "log", fails_twice)
    with caplog.at_level(logging.WARNING):
        run, _ = train_state(small_config("ppo", tmp_path))
    assert len([record for record in caplog.records if "the run goes on" in record.message]) == 1
    assert "No space left on device" in caplog.text
    assert training_rows(run)


def test_a_table_that_cannot_grow_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = CsvLogger(tmp_path / "metrics.csv")
    table.log({"a": 1}, 1)
    before = (tmp_path / "metrics.csv").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space"):
            table.log({"b": 1}, 2)
    assert (tmp_path / "metrics.csv").read_text() == before
    assert leftovers(tmp_path) == []
    table.log({"a": 3}, 3)
    table.close()
    assert (tmp_path / "metrics.csv").read_text() == before + "3,3\n"


def test_a_file_system_without_locks_warns_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with RunLock(tmp_path):
        assert "cannot be locked" in caplog.text


def test_a_file_system_without_links_still_has_a_latest_and_a_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", no_links)
    store = CheckpointStore(tmp_path, keep=1)
    for step in (1, 2, 3):
        store.save(step, {"x": step})
        if step == 1:
            store.mark_best(1)
    assert (store.load("latest")["x"], store.load("best")["x"]) == (3, 1)
    assert store.steps() == [1, 3]


def test_a_run_that_is_moved_while_it_trains_is_not_begun_again(tmp_path: Path) -> None:
    class Moves(Callback):
        def on_checkpoint(self, session: Session) -> None:
            for run in tmp_path.glob("runs/ppo/*/*"):
                shutil.move(run, tmp_path / "moved")

    config = small_config("ppo", tmp_path / "runs", checkpoint_interval=64)
    with pytest.raises(CheckpointError, match="moved or deleted"):
        train_run(config, callbacks=[Moves()])
    assert list(tmp_path.glob("runs/ppo/*/*")) == []
    assert resume_run(tmp_path / "moved").global_step >= config.total_timesteps


def test_a_process_that_the_lock_refuses_has_not_touched_the_config(tmp_path: Path) -> None:
    run, _ = train_state(small_config("ppo", tmp_path))
    before = (run / "config.yaml").read_text()
    with RunLock(run), pytest.raises(RLTrainingError, match="is being written by"):
        resume_run(run, total_timesteps=777)
    assert (run / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Too many open files"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/gone"), "/gone: No such file or directory"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "out of memory"),
    ],
    ids=str,
)
def test_what_the_machine_refuses_is_one_line(
    raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr("rl_training.cli.train.train_run", fail)
    assert main(["train", "ppo", "--env", "CartPole-v1"]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert told in error
    assert "\n" not in error
