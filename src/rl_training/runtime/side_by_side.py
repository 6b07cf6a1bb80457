"""Several runs at a time in processes of this machine, each as `train_run` would have made it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from rl_training.errors import RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import TrainResult

Tell = Callable[[int, dict[str, Any], int], bool | None]  # the run's number, a row of it, the step
Train = Callable[..., TrainResult]


class _Running(NamedTuple):
    number: int
    process: BaseProcess
    pipe: Connection


def train_side_by_side(configs: Sequence[TrainConfig], *, jobs: int, tell: Tell) -> Iterator[tuple[int, TrainResult]]:
    """(number, result) of each run as it ends; `jobs` of them run at once. The first failure ends all."""
    for number, outcome in outcomes_side_by_side(configs, jobs=jobs, tell=tell):
        if isinstance(outcome, RLTrainingError):
            raise outcome
        yield number, outcome


def outcomes_side_by_side(
    configs: Iterable[TrainConfig], *, jobs: int, tell: Tell, train: Train = train_run
) -> Iterator[tuple[int, TrainResult | RLTrainingError]]:
    """(number, result or error) of each run as it ends; a config is taken when there is a free process for it.

    A run whose row `tell` answers with True is ended: it saves itself, and its outcome is the signal's error.
    """
    waiting = enumerate(configs)
    running: dict[Any, _Running] = {}  # by their pipes
    ended: set[int] = set()
    try:
        while True:
            while len(running) < jobs and (job := next(waiting, None)):
                started = _start(*job, train)
                running[started.pipe] = started
            if not running:
                return
            for pipe in wait(list(running)):
                run = running[pipe]
                kind, said = _received(run)
                if kind == "row":
                    if tell(run.number, *said) and run.number not in ended:
                        ended.add(run.number)
                        run.process.terminate()
                    continue
                del running[pipe]
                run.process.join()
                yield run.number, said
    finally:
        for run in running.values():  # a signal has reached them, too: they save and end by themselves
            run.process.terminate()
        for run in running.values():
            run.process.join()


def _start(number: int, config: TrainConfig, train: Train) -> _Running:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(config, there, train), name=f"seed {config.seed}")
    process.start()
    there.close()
    return _Running(number, process, here)


def _received(run: _Running) -> tuple[str, Any]:
    try:
        return run.pipe.recv()
    except EOFError:
        run.process.join()
        name, code = run.process.name, run.process.exitcode
        return "error", RLTrainingError(f"the process of {name} ended with {code}; resume its run")


class _Teller(Callback):
    """Sends rows to the process that shows them."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self._pipe.send(("row", (row, session.progress.global_step)))

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self._pipe.send(("row", (evaluation.row(), evaluation.step)))


def _train(config: TrainConfig, pipe: Connection, train: Train) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        pipe.send(("result", train(config, callbacks=[_Teller(pipe)])))
    except RLTrainingError as error:
        pipe.send(("error", error))


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone, for nobody would hear of it; its checkpoints are good."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
