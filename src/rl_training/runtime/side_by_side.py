"""Several runs at a time in processes of this machine, each as `train_run` would have made it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
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

Tell = Callable[[int, dict[str, Any], int], None]  # the run's number, a row of it, the step


class _Running(NamedTuple):
    number: int
    process: BaseProcess
    pipe: Connection


def train_side_by_side(configs: Sequence[TrainConfig], *, jobs: int, tell: Tell) -> Iterator[tuple[int, TrainResult]]:
    """(number, result) of each run as it ends; `jobs` of them run at once. The first failure ends all."""
    waiting = list(enumerate(configs))
    running: dict[Any, _Running] = {}  # by their pipes
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                started = _start(*waiting.pop(0))
                running[started.pipe] = started
            for pipe in wait(list(running)):
                run = running[pipe]
                kind, said = _received(run, configs)
                if kind == "row":
                    tell(run.number, *said)
                    continue
                del running[pipe]
                run.process.join()
                if kind == "error":
                    raise said
                yield run.number, said
    finally:
        for run in running.values():  # a signal has reached them, too: they save and end by themselves
            run.process.terminate()
        for run in running.values():
            run.process.join()


def _start(index: int, config: TrainConfig) -> _Running:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(config, there), name=f"seed {config.seed}")
    process.start()
    there.close()
    return _Running(index, process, here)


def _received(run: _Running, configs: Sequence[TrainConfig]) -> tuple[str, Any]:
    try:
        return run.pipe.recv()
    except EOFError:
        run.process.join()
        seed, code = configs[run.number].seed, run.process.exitcode
        return "error", RLTrainingError(f"the process of seed {seed} ended with {code}; resume its run")


class _Teller(Callback):
    """Sends rows to the process that shows them."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self._pipe.send(("row", (row, session.progress.global_step)))

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self._pipe.send(("row", (evaluation.row(), evaluation.step)))


def _train(config: TrainConfig, pipe: Connection) -> None:
    try:
        pipe.send(("result", train_run(config, callbacks=[_Teller(pipe)])))
    except RLTrainingError as error:
        pipe.send(("error", error))
