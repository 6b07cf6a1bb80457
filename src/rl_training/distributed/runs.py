"""Several runs at a time, as many as Ray has processors for; each is a local run in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.distributed.connection import LOST, connect, ray
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import Session
from rl_training.runtime.side_by_side import Tell, Train
from rl_training.runtime.workflows import TrainResult

POLL_S = 0.2
LAST_S = 10.0  # for runs that are ended to save themselves


def train_in_parallel(configs: Sequence[TrainConfig]) -> Iterator[TrainResult]:
    """Results in the order of the configs; a run that fails raises its error after those before it."""
    connect(configs[0].ray_address)
    train = ray.remote(num_cpus=1, max_retries=0)(_train)
    runs = [train.remote(_local(config)) for config in configs]
    for config, run in zip(configs, runs, strict=True):
        yield _result(run, config)


def _result(run: Any, config: TrainConfig) -> Any:
    try:
        return ray.get(run)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (*LOST, ray.exceptions.WorkerCrashedError) as error:
        raise RLTrainingError(f"the process of seed {config.seed} died: {error}") from error


def _train(config: TrainConfig) -> TrainResult:
    return train_run(config)


def _local(config: TrainConfig) -> TrainConfig:
    """The run as one process makes it; a worker's working directory is not the user's."""
    return config.in_one_process().model_copy(update={"output_dir": str(Path(config.output_dir).absolute())})


class Runner(Callback):
    """A process that trains one run, keeps its rows until they are asked for, and can be asked to end."""

    def __init__(self) -> None:
        self._rows: list[tuple[dict[str, Any], int]] = []
        self._is_ended = False

    def train(self, config: TrainConfig, train: Train) -> TrainResult:
        return train(config, callbacks=[self])

    def news(self) -> list[tuple[dict[str, Any], int]]:
        rows, self._rows = self._rows, []
        return rows

    def end(self) -> None:
        self._is_ended = True

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self._add(session, row, session.progress.global_step)

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self._add(session, evaluation.row(), evaluation.step)

    def _add(self, session: Session, row: dict[str, Any], step: int) -> None:
        self._rows.append((row, step))
        if self._is_ended:
            session.request_stop("it was asked to end")


class _Running(NamedTuple):
    number: int
    config: TrainConfig
    actor: Any


def outcomes_on_ray(
    configs: Iterable[TrainConfig], *, jobs: int, tell: Tell, train: Train = train_run, address: str | None = None
) -> Iterator[tuple[int, TrainResult | RLTrainingError]]:
    """`runtime.side_by_side.outcomes_side_by_side` with processes of Ray, on this machine or on a cluster."""
    connect(address)
    runner = ray.remote(num_cpus=1, max_concurrency=2, max_restarts=0)(Runner)  # one trains, one answers
    waiting = enumerate(configs)
    running: dict[Any, _Running] = {}
    try:
        while True:
            while len(running) < jobs and (job := next(waiting, None)):
                run = _Running(*job, runner.remote())
                running[run.actor.train.remote(_local(run.config), train)] = run
            if not running:
                return
            done, _ = ray.wait(list(running), timeout=POLL_S)
            for run in running.values():
                _pass_on(run, tell)
            for outcome in done:
                run = running.pop(outcome)
                try:
                    yield run.number, _result(outcome, run.config)
                except RLTrainingError as error:
                    yield run.number, error
                ray.kill(run.actor)
    finally:
        for run in running.values():
            run.actor.end.remote()
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=LAST_S)
        for run in running.values():
            ray.kill(run.actor)


def _pass_on(run: _Running, tell: Tell) -> None:
    try:
        rows = ray.get(run.actor.news.remote())
    except LOST:  # its outcome says so
        return
    for row in rows:
        if tell(run.number, *row):
            run.actor.end.remote()
