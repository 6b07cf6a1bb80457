"""Trackers: the real libraries without network or login, the same run after a resume, and failures borne."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance import StopAtCheckpoint, rows_of, small_config
from rl_training.errors import ConfigError, MissingExtraError
from rl_training.experiment import trackers
from rl_training.experiment.runs import list_runs
from rl_training.experiment.trackers import MlflowTracker, Tracker, WandbTracker, answers
from rl_training.runtime.manager import resume_run, train_run

EVERYTHING = ["config", "controls", "videos", "checkpoint"]


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no_netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


def stopped_and_resumed(tmp_path: Path, *loggers: str) -> Path:
    """A run that stopped at its first checkpoint, got a video and went on to its end."""
    kwargs = {"learning_rate_schedule": "linear"}
    config = small_config(
        "a2c",
        tmp_path / "runs",
        algo_kwargs=kwargs,
        loggers=["jsonl", *loggers],
        tracker_artifacts=EVERYTHING,
        checkpoint_interval=128,
    )
    run_dir = train_run(config, callbacks=[StopAtCheckpoint()]).run_dir
    assert run_dir is not None
    (run_dir / "seen.mp4").write_bytes(b"a film")
    resume_run(run_dir)
    return run_dir


def ids_of(run_dir: Path) -> dict[str, str]:
    return json.loads((run_dir / "trackers.json").read_text())


def test_mlflow_has_one_run_with_every_row_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "runs" / "mlruns").as_uri()  # a database takes ten seconds to be made
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    run_dir = stopped_and_resumed(tmp_path, "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("rl-training")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == ids_of(run_dir)["mlflow"]
    assert run.info.status == "FINISHED"
    assert run.data.params["algo_kwargs.learning_rate_schedule"] == "linear"
    rows = {row["global_step"]: row["learning_rate"] for row in rows_of(run_dir) if "learning_rate" in row}
    history = client.get_metric_history(run.info.run_id, "train/learning_rate")
    assert {metric.step: metric.value for metric in history} == pytest.approx(rows)
    assert run.data.metrics["train/eval_return_mean"] == rows_of(run_dir)[-1]["eval_return_mean"]
    kept = {kind: {Path(f.path).name for f in client.list_artifacts(run.info.run_id, kind)} for kind in EVERYTHING}
    assert kept["checkpoint"] == {"manifest.json", "state.json", "tensors.safetensors"}
    assert (kept["config"], kept["controls"], kept["videos"]) == ({"settings.yaml"}, {"controls.csv"}, {"seen.mp4"})
    assert [info.path for info in list_runs(tmp_path / "runs")] == [run_dir]  # none of these files looks like a run


def test_mlflow_writes_to_a_database_beside_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setattr(mlflow, "MlflowClient", lambda tracking_uri: tracking_uri)
    assert MlflowTracker.client(Path("/home/me/runs")) == "sqlite:////home/me/runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert MlflowTracker.client(Path("/home/me/runs")) == "http://mlflow:5000"


def test_trackio_has_one_run_with_every_row(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    run_dir = stopped_and_resumed(tmp_path, "trackio")
    database = sqlite3.connect(tmp_path / "trackio" / "rl-training.db")
    logged = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    assert {name for name, *_ in logged} == {ids_of(run_dir)["trackio"]}
    numbers = [(step, json.loads(text)) for _, step, text in logged]
    rates = {step: row["train/learning_rate"] for step, row in numbers if "train/learning_rate" in row}
    rows = {row["global_step"]: row["learning_rate"] for row in rows_of(run_dir) if "learning_rate" in row}
    assert rates == pytest.approx(rows)
    assert any((tmp_path / "trackio" / "artifacts").rglob("*"))


def test_wandb_writes_offline_under_one_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run_dir = stopped_and_resumed(tmp_path, "wandb")
    offline = list((run_dir / "wandb").glob("offline-run-*"))
    # offline-run-<time>-<id>, and a number behind it where two began in the same second
    assert {path.name.split("-")[3] for path in offline} == {ids_of(run_dir)["wandb"]}
    assert sum(path.stat().st_size for path in (run_dir / "wandb").glob("offline-run-*/*.wandb")) > 1_000


class Broken(Tracker):
    """A service whose server is gone from the n-th call on."""

    extra, module = "broken", "json"
    made: list[Broken] = []
    calls: list[str]
    works_for = 1

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) > self.works_for:
            raise ConnectionError("the server is gone")

    def open(self, name: str, config: dict[str, Any]) -> None:
        self.calls = []
        self.made.append(self)
        self._call("open")

    def send(self, numbers: dict[str, float], step: int) -> None:
        self._call("send")

    def upload(self, kind: str, files: Mapping[str, Path]) -> None:
        self._call("upload")

    def finish(self) -> None:
        self._call("finish")


@pytest.mark.parametrize("works_for", [0, 1, 3])
def test_a_service_that_fails_is_told_of_once_and_left_alone(
    works_for: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Broken] = []
    monkeypatch.setattr(Broken, "made", made)
    monkeypatch.setattr(Broken, "works_for", works_for)
    config = small_config("a2c", tmp_path, loggers=["jsonl", Broken], tracker_artifacts=["config", "checkpoint"])
    with caplog.at_level(logging.WARNING):
        result = train_run(config)
    assert result.global_step >= config.total_timesteps
    (warning,) = [record.message for record in caplog.records if "broken" in record.message]
    assert "left alone until the run is resumed (ConnectionError: the server is gone" in warning
    assert len(made[0].calls) == works_for + 1


def test_a_library_that_is_missing_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WandbTracker, "module", "no_such_library")
    with pytest.raises(MissingExtraError, match=r"rl-training\[wandb\]"):
        train_run(small_config("a2c", tmp_path, loggers=["wandb"]))
    assert not list_runs(tmp_path)


def test_wandb_goes_online_with_a_login_and_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    class LoggedIn:
        @staticmethod
        def login(prompt: bool) -> bool:
            return not prompt

    assert WandbTracker._mode(LoggedIn) == "offline"
    monkeypatch.setattr(trackers, "answers", lambda url: True)
    assert WandbTracker._mode(LoggedIn) == "online"


def test_a_server_that_is_not_there_does_not_answer() -> None:
    assert not answers("http://127.0.0.1:9")


def test_an_unknown_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tracker_artifacts"):
        small_config("a2c", tmp_path, tracker_artifacts=["weights"])
