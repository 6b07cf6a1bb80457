"""Services that keep and compare runs: Weights & Biases, MLflow and Trackio.

Each is a logger that a run can have beside its files. Without a login or a server they write to this machine. A run
that is resumed goes on with the same run of the service: `trackers.json` has its id. A service that fails is told of
once and then left alone, since it must never end or slow a run.
"""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rl_training.blame import told
from rl_training.errors import import_extra
from rl_training.experiment.files import open_to_append, replacing
from rl_training.experiment.plain import read_yaml_file
from rl_training.experiment.rows import STEP_KEY, Row, scalars
from rl_training.experiment.runs import file_name

_log = logging.getLogger(__name__)

IDS_NAME = "trackers.json"
NETWORK_PATIENCE_S = 2.0
LONGEST_PARAM = 500  # of MLflow


class Tracker(ABC):
    """A logger that also keeps the config and, by choice, files; whatever its service raises, the run goes on."""

    extra: ClassVar[str]
    module: ClassVar[str]

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        self.run: Any = None
        self._given_up = False
        config = read_yaml_file(self.run_dir / "config.yaml")
        name = "-".join([str(config["algo"]), str(config["env_id"]), self.run_dir.name])
        self._guarded(lambda: self.open(name, config))

    @classmethod
    def library(cls) -> Any:
        return import_extra(cls.module, extra=cls.extra)

    def log(self, row: Row, step: int) -> None:
        self._guarded(lambda: self.send(scalars(row), step))

    def keep(self, kind: str, files: Mapping[str, Path]) -> None:
        """Keeps files with the run, each under the name that it is to have there."""
        self._guarded(lambda: self.upload(kind, files))

    def close(self) -> None:
        self._guarded(self.finish)

    @abstractmethod
    def open(self, name: str, config: dict[str, Any]) -> None:
        """Begins the service's run, or goes on with it."""

    @abstractmethod
    def send(self, numbers: dict[str, float], step: int) -> None: ...

    def upload(self, kind: str, files: Mapping[str, Path]) -> None:
        """Makes an artifact of the files, as Weights & Biases does and others after it."""
        artifact = self.library().Artifact(file_name(f"{self.run.name}-{kind}"), type=kind)
        for name, path in files.items():
            artifact.add_file(str(path), name=name)
        self.run.log_artifact(artifact)

    def finish(self) -> None:
        self.run.finish()

    def run_id(self, make: Callable[[], str]) -> str:
        """The id that the service knows the run by, made once for all of its resumptions."""
        path = self.run_dir / IDS_NAME
        ids = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if self.extra not in ids:
            ids[self.extra] = make()
            with replacing(path) as file:
                json.dump(ids, file)
        return str(ids[self.extra])

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._given_up:
            return
        try:
            with redirect_stdout(io.StringIO()):  # a run's own output is for its user and for pipes
                call()
        except Exception as error:  # noqa: BLE001  # the service's code, its network and its server
            self._given_up = True
            _log.warning(
                "%s: %s failed and is left alone until the run is resumed (%s); the run goes on",
                *(self.run_dir, self.extra, told(error)),
            )


class WandbTracker(Tracker):
    """Weights & Biases; offline in the run's directory unless it has a login and a network, or WANDB_MODE says so."""

    extra, module = "wandb", "wandb"

    def open(self, name: str, config: dict[str, Any]) -> None:
        wandb = self.library()
        self.run = wandb.init(
            project=config["tracker_project"],
            id=self.run_id(lambda: secrets.token_hex(8)),
            name=name,
            resume="allow",
            dir=str(self.run_dir),
            mode=os.environ.get("WANDB_MODE") or self._mode(wandb),
            config=config,
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Rows come with a step of their own: an evaluation beside training may end after later rows.
        self.run.define_metric("*", step_metric=STEP_KEY)

    @staticmethod
    def _mode(wandb: Any) -> str:
        url = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
        return "online" if answers(url) and wandb.login(prompt=False) else "offline"

    def send(self, numbers: dict[str, float], step: int) -> None:
        self.run.log({**numbers, STEP_KEY: step})


class MlflowTracker(Tracker):
    """MLflow, at MLFLOW_TRACKING_URI or in a database beside the runs."""

    extra, module = "mlflow", "mlflow"

    def open(self, name: str, config: dict[str, Any]) -> None:
        # A server that does not answer is asked seven times over by default, which takes minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        home = self.run_dir.resolve().parents[2]
        with _one_at_a_time(home / ".mlflow.lock"):
            self.run = self.client(home)
            experiment = self._experiment(config["tracker_project"], home)
            self.id = self.run_id(lambda: str(self.run.create_run(experiment, run_name=name).info.run_id))
        self.run.set_terminated(self.id, status="RUNNING")
        if not self.run.get_run(self.id).data.params:
            for key, value in _flat(config):
                self.run.log_param(self.id, key, str(value)[:LONGEST_PARAM])

    @classmethod
    def client(cls, home: Path) -> Any:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home / 'mlflow.db'}"
        return cls.library().MlflowClient(tracking_uri=uri)

    def _experiment(self, project: str, home: Path) -> str:
        found = self.run.get_experiment_by_name(project)
        if found is not None:
            return str(found.experiment_id)
        local = None if os.environ.get("MLFLOW_TRACKING_URI") else (home / "mlflow_artifacts").as_uri()
        return str(self.run.create_experiment(project, artifact_location=local))

    def send(self, numbers: dict[str, float], step: int) -> None:
        entities = import_extra("mlflow.entities", extra=self.extra)
        now = int(self.library().utils.time.get_current_time_millis())
        self.run.log_batch(self.id, [entities.Metric(name, number, now, step) for name, number in numbers.items()])

    def upload(self, kind: str, files: Mapping[str, Path]) -> None:
        for path in files.values():
            self.run.log_artifact(self.id, str(path), artifact_path=kind)

    def finish(self) -> None:
        self.run.set_terminated(self.id)


class TrackioTracker(Tracker):
    """Trackio, in its folder on this machine (TRACKIO_DIR); `trackio show` opens its page."""

    extra, module = "trackio", "trackio"

    def open(self, name: str, config: dict[str, Any]) -> None:
        self.run = self.library().init(
            project=config["tracker_project"],
            name=self.run_id(lambda: f"{name}-{secrets.token_hex(4)}"),
            config=config,
            resume="allow",
            embed=False,
        )

    def send(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def finish(self) -> None:
        self.library().finish()  # its own `finish` would leave the run to be finished once more at exit


TRACKERS: dict[str, type[Tracker]] = {cls.extra: cls for cls in (WandbTracker, MlflowTracker, TrackioTracker)}


def answers(url: str) -> bool:
    """Whether a server takes connections at the address."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=NETWORK_PATIENCE_S).close()
    except OSError:
        return False
    return True


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Lets one of several processes that begin together make the database."""
    with open_to_append(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
