"""Callbacks: everything that listens to a run, be it a logger, the checkpoints, the display or a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.base import UpdateResult
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.naming import PYTHON_PREFIX, ask_again, import_named, python_name
from rl_training.runtime.evaluation import Evaluation

if TYPE_CHECKING:
    from rl_training.runtime.session import Session


class Callback:
    """Override the hooks you need; `session.request_stop(reason)` ends the run after the iteration under way.

    Callbacks are called in their order. What one of them adds to a row, those after it see; the loggers of a run come
    last, so that the files have it too, and what saves its checkpoints comes first.
    """

    def on_start(self, session: Session) -> None: ...

    def on_update(self, session: Session, result: UpdateResult) -> None:
        """An update has moved the parameters."""

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        """A row of metrics is due; it may be added to."""

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        """An evaluation has ended, the one after training included; `evaluation.step` is when its policy acted."""

    def on_checkpoint(self, session: Session) -> None:
        """The session is at a checkpoint; where there is a run directory, its state has been saved there."""

    def on_best(self, session: Session, step: int) -> None:
        """The policy of that step has the best evaluation so far; its checkpoint was saved, and may be pruned."""

    def on_end(self, session: Session) -> None: ...


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def on_start(self, session: Session) -> None:
        for callback in self.callbacks:
            callback.on_start(session)

    def on_update(self, session: Session, result: UpdateResult) -> None:
        for callback in self.callbacks:
            callback.on_update(session, result)

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        for callback in self.callbacks:
            callback.on_log(session, row)

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        for callback in self.callbacks:
            callback.on_evaluation(session, evaluation)

    def on_checkpoint(self, session: Session) -> None:
        for callback in self.callbacks:
            callback.on_checkpoint(session)

    def on_best(self, session: Session, step: int) -> None:
        for callback in self.callbacks:
            callback.on_best(session, step)

    def on_end(self, session: Session) -> None:
        for callback in self.callbacks:
            callback.on_end(session)


class TargetReturn(Callback):
    """Stops when an evaluation's mean reaches the target."""

    def __init__(self, target: float) -> None:
        self.target = target

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        if evaluation.return_mean >= self.target:
            session.request_stop(f"evaluation reached {evaluation.return_mean:.1f}, the target was {self.target:g}")


class EarlyStopping(Callback):
    """Stops after `patience` evaluations in a row that were no best."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        waited = session.progress.evaluations_since_best
        if waited >= self.patience:
            session.request_stop(f"no better evaluation in {waited}")


def configured_callbacks(config: TrainConfig, given: Sequence[Callback] = ()) -> list[Callback]:
    """The callbacks that the config asks for; one that was an object has to be among those that are `given` again."""
    again = {python_name(callback) for callback in given}
    callbacks = [_callback(entry) for entry in config.callbacks if not (isinstance(entry, str) and entry in again)]
    if config.target_return is not None:
        callbacks.append(TargetReturn(config.target_return))
    if config.early_stop_patience is not None:
        callbacks.append(EarlyStopping(config.early_stop_patience))
    return callbacks


def _callback(entry: Any) -> Callback:
    """An object, a class that is made without arguments, or the name of either."""
    if isinstance(entry, str) and entry.startswith(PYTHON_PREFIX):
        raise ask_again("the callback", entry, "callbacks=[…]")
    found = import_named(entry, "the callback") if isinstance(entry, str) else entry
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Callback):
        raise ConfigError(f"callbacks: {entry!r} is no rl_training.Callback; derive it from that class")
    return made
