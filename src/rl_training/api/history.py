"""The rows of metrics of an agent in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.errors import ConfigError, import_extra
from rl_training.experiment.logging import Logger
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.session import Session


class History(list[dict[str, Any]]):
    """A list of rows, in the order in which they were logged; those of evaluations have `eval_…` keys."""

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return import_extra("pandas", "pandas").DataFrame(list(self))


class HistoryRecorder(Callback):
    """Keeps every row, and hands it to the user's loggers; it comes last, so that it has what others added."""

    def __init__(self, history: History, loggers: Sequence[Logger]) -> None:
        self.history = history
        self.loggers = loggers

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self._add(dict(row), session.progress.global_step)

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self._add(evaluation.row(), evaluation.step)

    def _add(self, row: dict[str, Any], step: int) -> None:
        self.history.append(row)
        for logger in self.loggers:
            logger.log(row, step)


def loggers_in_memory(given: Sequence[Any]) -> list[Logger]:
    """The loggers of an agent, which has no directory: those that are objects; names are refused."""
    names = [str(logger) for logger in given if isinstance(logger, str)]
    if names:
        raise ConfigError(
            f"loggers: {', '.join(names)} would write to a run directory, and an agent in memory has none; "
            "train with rl_training.train(…), pass an object with log(row, step) and close(), or read agent.history"
        )
    return list(given)
