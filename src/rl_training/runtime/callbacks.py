"""Callbacks: what a user, or the config, adds to the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl_training.algorithms.base import UpdateResult
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.evaluation import Evaluation

if TYPE_CHECKING:
    from rl_training.runtime.session import Session


class Callback:
    """Override what you need; `session.request_stop(reason)` ends the run after the iteration under way."""

    def on_start(self, session: Session) -> None: ...

    def on_update(self, session: Session, result: UpdateResult) -> None: ...

    def on_log(self, session: Session, row: Mapping[str, float]) -> None: ...

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None: ...

    def on_checkpoint(self, session: Session) -> None: ...

    def on_end(self, session: Session) -> None: ...


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


def configured_callbacks(config: TrainConfig) -> list[Callback]:
    callbacks: list[Callback] = []
    if config.target_return is not None:
        callbacks.append(TargetReturn(config.target_return))
    if config.early_stop_patience is not None:
        callbacks.append(EarlyStopping(config.early_stop_patience))
    return callbacks
