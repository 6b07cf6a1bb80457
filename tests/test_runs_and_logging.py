"""Run directories, their lock, their list; the loggers and what they leave after a kill; the errors' exit codes."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training import errors
from rl_training.errors import ConfigError, MissingExtraError, RLTrainingError, StoppedBySignal, import_extra
from rl_training.experiment.logging import (
    CsvLogger,
    JsonlLogger,
    TensorBoardLogger,
    open_loggers,
    truncate_after,
)
from rl_training.experiment.runs import RunInfo, RunLock, create_run_dir, list_runs


def jsonl_rows(path: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def in_another_process(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_every_error_has_its_exit_code() -> None:
    names = "RLTrainingError ConfigError EnvironmentFault CheckpointError NonFiniteError MissingExtraError"
    assert [getattr(errors, name).exit_code for name in names.split()] == [1, 2, 3, 4, 5, 6]
    assert [StoppedBySignal(number).exit_code for number in (signal.SIGINT, signal.SIGTERM)] == [130, 143]
    assert issubclass(ConfigError, ValueError)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "plotting needs matplotlib; install it with: pip install 'rl-training[plot]'"
    assert str(errors.missing_extra("plot", "matplotlib")) == message
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # another test may have imported it
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        import_extra("matplotlib.pyplot", extra="plot")
    assert import_extra("json", extra="plot") is json


def test_light_modules_do_not_import_torch_or_rich() -> None:
    modules = [f"rl_training.{name}" for name in ("errors", "experiment.runs", "experiment.logging", "runtime.display")]
    code = f"import sys, {', '.join(modules)}; print(sorted({{'torch', 'rich'}} & set(sys.modules)))"
    assert in_another_process(code).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("env_name", "folder"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("package.module:factory", "package.module-factory"),
        ("../../etc", "etc"),
        ("...", "unnamed"),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_run_directory_says_what_ran(env_name: str, folder: str, tmp_path: Path) -> None:
    run_dir = create_run_dir(tmp_path, "ppo", env_name, seed=3)
    assert run_dir.is_dir()
    assert run_dir.parent == tmp_path / "ppo" / folder
    assert re.fullmatch(r"\d{8}-\d{6}-seed3", run_dir.name)


def test_no_two_runs_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: "20250102-030405")
    names = [create_run_dir(tmp_path, "ppo", "E", seed=0).name for _ in range(3)]
    assert names == ["20250102-030405-seed0", "20250102-030405-seed0-2", "20250102-030405-seed0-3"]
    assert [create_run_dir(tmp_path, "ppo", "E", 0, name="my/run").name for _ in range(2)] == ["my-run", "my-run-2"]


TAKE_THE_LOCK = """
import sys
from pathlib import Path
from rl_training.experiment.runs import RunLock
with RunLock(Path(sys.argv[1])):
    print("locked")
"""
DIE_WITH_THE_LOCK = TAKE_THE_LOCK + "    import os; os.kill(os.getpid(), 9)"


def test_a_lock_keeps_other_processes_out_and_names_its_holder(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert f"is being written by process {os.getpid()}" in in_another_process(TAKE_THE_LOCK, str(tmp_path)).stderr
        with pytest.raises(RLTrainingError, match=f"process {os.getpid()}"), RunLock(tmp_path):
            pass
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert in_another_process(TAKE_THE_LOCK, str(tmp_path)).stdout.strip() == "locked"


def test_the_lock_of_a_dead_process_does_not_block(tmp_path: Path) -> None:
    assert in_another_process(DIE_WITH_THE_LOCK, str(tmp_path)).returncode == -9
    assert (tmp_path / ".lock").read_text()
    with RunLock(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_forked_worker_that_outlives_its_parent_does_not_hold_the_lock(tmp_path: Path) -> None:
    """The worker waits on a pipe that only this test closes; meanwhile its parent is gone."""
    code = """
import os, sys
from pathlib import Path
from rl_training.experiment.runs import RunLock
lock = RunLock(Path(sys.argv[1])).__enter__()
heard, told = os.pipe()
if os.fork() == 0:
    os.close(1); os.close(2)
    os.write(told, b"x")
    os.read(0, 1)
os.read(heard, 1)
os._exit(0)
"""
    reading_end, writing_end = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdin=reading_end, check=True, timeout=60)
        with RunLock(tmp_path):
            pass
    finally:
        os.close(writing_end)
        os.close(reading_end)


def make_run(path: Path, config: dict[str, Any], *rows: dict[str, Any]) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_runs_are_listed_with_their_last_return(tmp_path: Path) -> None:
    config = {"algo": "ppo", "env_id": "CartPole-v1", "seed": 1, "total_timesteps": 100}
    rows: list[dict[str, Any]] = [
        {"global_step": 50, "return_mean": 20.0},
        {"global_step": 100, "return_mean": None, "kl": 0.1},
    ]
    done = make_run(tmp_path / "ppo" / "CartPole-v1" / "b", config, *rows)
    killed = make_run(tmp_path / "ppo" / "CartPole-v1" / "a", config, rows[0])
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"global_step": 75, "retu')
    assert list_runs(tmp_path) == [
        RunInfo(killed, "ppo", "CartPole-v1", 1, step=50, return_mean=20.0, evaluated=None, finished=False),
        RunInfo(done, "ppo", "CartPole-v1", 1, step=100, return_mean=20.0, evaluated=None, finished=True),
    ]


def test_a_damaged_run_is_listed_too(tmp_path: Path) -> None:
    (make_run(tmp_path / "a", {}) / "config.yaml").write_text("{: not yaml")
    (make_run(tmp_path / "b", {}) / "metrics.jsonl").unlink()
    assert list_runs(tmp_path) == [RunInfo(tmp_path / name, *[None] * 7) for name in "ab"]
    assert list_runs(tmp_path / "absent") == []


def test_configs_cannot_run_code(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", {})
    (run / "config.yaml").write_text(f"!!python/object/apply:os.mkdir ['{tmp_path}/hacked']")
    assert list_runs(tmp_path)[0].algo is None
    assert not (tmp_path / "hacked").exists()


def test_json_lines_are_strict_json_and_there_at_once(tmp_path: Path) -> None:
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    row: dict[str, Any] = {
        "global_step": 5,
        "loss": math.nan,
        "kl": -math.inf,
        "lr": np.float32(0.5),
        "n": np.int64(3),
        "phase": "aux",
    }
    logger.log(row, 5)
    assert jsonl_rows(tmp_path / "metrics.jsonl") == [
        {"global_step": 5, "loss": None, "kl": None, "lr": 0.5, "n": 3, "phase": "aux"}
    ]
    not_a_number: Any = [1]
    with pytest.raises(TypeError, match="list"):
        logger.log({"loss": not_a_number}, 6)
    logger.close()


def test_a_table_grows_with_the_names_in_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CsvLogger(path)
    logger.log({"global_step": 1, "loss": 0.5}, 1)
    logger.log({"global_step": 2, "note": 'said "a, b"\nand left'}, 2)
    logger.close()
    logger = CsvLogger(path)
    logger.log({"global_step": 3, "kl": 0.25, "loss": math.nan}, 3)
    logger.close()
    assert csv_rows(path) == [
        {"global_step": "1", "loss": "0.5", "note": "", "kl": ""},
        {"global_step": "2", "loss": "", "note": 'said "a, b"\nand left', "kl": ""},
        {"global_step": "3", "loss": "nan", "note": "", "kl": "0.25"},
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_a_crash_while_the_table_grows_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CsvLogger(tmp_path / "metrics.csv")
    logger.log({"loss": 0.5}, 1)

    def killed(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(OSError, match="killed"):
        logger.log({"loss": 0.5, "kl": 1.0}, 2)
    assert csv_rows(tmp_path / "metrics.csv") == [{"global_step": "1", "loss": "0.5"}]


def test_resuming_drops_what_was_logged_after_the_checkpoint(tmp_path: Path) -> None:
    loggers = open_loggers(["jsonl", "csv"], tmp_path, resume_step=None)
    for step in (10, 20, 30):
        for logger in loggers:
            logger.log({"global_step": step, "loss": step / 10}, step)
    for logger in loggers:
        logger.close()
    loggers = open_loggers(["jsonl", "csv"], tmp_path, resume_step=20)
    for logger in loggers:
        logger.log({"global_step": 25, "loss": 2.5}, 25)
        logger.close()
    assert [row["global_step"] for row in jsonl_rows(tmp_path / "metrics.jsonl")] == [10, 20, 25]
    assert [row["loss"] for row in csv_rows(tmp_path / "metrics.csv")] == ["1.0", "2.0", "2.5"]


@pytest.mark.parametrize("remaining", range(5))
def test_a_line_cut_short_by_a_kill_is_dropped(remaining: int, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"global_step": 1}\n' + '{"global_step": 2}'[: 1 + 4 * remaining])
    (tmp_path / "metrics.csv").write_text("global_step,loss\n1,5\n" + "2,5.12"[: 1 + remaining])
    truncate_after(tmp_path, 10)
    assert jsonl_rows(tmp_path / "metrics.jsonl") == [{"global_step": 1}]
    assert csv_rows(tmp_path / "metrics.csv") == [{"global_step": "1", "loss": "5"}]


def test_truncating_a_run_without_logs_is_nothing(tmp_path: Path) -> None:
    truncate_after(tmp_path, 10)
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "metrics.jsonl").write_text("")
    truncate_after(tmp_path, 10)
    assert (tmp_path / "metrics.csv").read_text() == (tmp_path / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(("name", "cure"), [("tensorbord", "did you mean 'tensorboard'"), ("abc", "choose from jsonl")])
def test_an_unknown_logger_is_refused_before_any_is_opened(name: str, cure: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=cure):
        open_loggers(["jsonl", name], tmp_path, resume_step=None)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_without_its_package_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"rl-training\[tensorboard\]"):
        open_loggers(["jsonl", "tensorboard"], tmp_path, resume_step=None)


def test_tensorboard_groups_its_tags_and_purges_on_resume(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path / "tensorboard")
    for step in (10, 20, 30):
        logger.log({"global_step": step, "policy_loss": 0.5, "eval/return_mean": 1.0, "phase": "aux"}, step)
    logger.close()
    (resumed,) = open_loggers(["tensorboard"], tmp_path, resume_step=20)
    resumed.log({"policy_loss": 0.25}, 25)
    resumed.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["eval/return_mean", "train/policy_loss"]
    assert [event.step for event in events.Scalars("train/policy_loss")] == [10, 20, 25]
