"""`run_training`: the only training loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rl_training.errors import NonFiniteError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.session import Session


class Sink(Protocol):
    """Where a run's rows and checkpoints go; the managed API has none."""

    def log(self, row: Mapping[str, float], step: int) -> None: ...

    def save(self, session: Session, *, is_best: bool) -> None: ...

    def mark_best(self, step: int) -> None:
        """The checkpoint of that step, if it is still there, turned out to be the best."""


def run_training(session: Session, *, callbacks: Sequence[Callback] = (), sinks: Iterable[Sink] = ()) -> None:
    """Collect, learn, log, evaluate, save, until the budget is spent or somebody asks to stop."""
    config, progress, sinks = session.config, session.progress, tuple(sinks)
    _notify(callbacks, "on_start", session)
    saved_at = -1
    while progress.global_step < config.total_timesteps and session.stop_reason is None:
        before = progress.global_step
        controls = _iterate(session, callbacks)
        due = _crossed(before, progress.global_step)
        if due(config.log_interval):
            _log(session, {**session.meter.flush(), **session.collector.metrics(), **controls}, callbacks, sinks)
        is_best = False
        evaluates = bool(config.eval_episodes) and due(config.eval_interval)
        in_background = session.evaluator is not None
        if in_background:
            _take_in_evaluation(session, callbacks, sinks, wait=evaluates)
        elif evaluates:
            is_best = _evaluate(session, callbacks, sinks)
        # What is evaluated beside training is saved now: should it turn out to be the best, it is there.
        if is_best or due(config.checkpoint_interval) or (evaluates and in_background):
            _save(session, callbacks, sinks, is_best=is_best)
            saved_at = progress.global_step
        if evaluates and in_background:
            session.evaluate_in_background()
    if session.evaluator is not None:
        _take_in_evaluation(session, callbacks, sinks, wait=True)
    if saved_at != progress.global_step:
        _save(session, callbacks, sinks, is_best=False)
    _notify(callbacks, "on_end", session)


def _iterate(session: Session, callbacks: Sequence[Callback]) -> dict[str, float]:
    """One rollout and its updates; returns the controls as they were used."""
    started = time.perf_counter()
    learner, collector, progress = session.learner, session.collector, session.progress
    updating = session.controls.at(progress.global_step, moment="updating")
    snapshot = session.snapshot(weights=not collector.shares_weights)
    learner.algorithm.apply_controls(updating)
    if not collector.shares_weights:
        session.apply_acting_controls()  # the learner may act too: replayed states are searched again
    collector.publish(snapshot)
    rollout = collector.collect(learner.rollout_steps)
    progress.global_step += rollout.num_steps
    progress.add_episodes(rollout.episodes)
    for result in session.learn(rollout, updating):
        session.meter.add(result)
        progress.gradient_steps += result.num_gradient_steps
        _notify(callbacks, "on_update", session, result)
    _check_finite(session)
    progress.iterations += 1
    progress.seconds += time.perf_counter() - started
    return {**updating, **snapshot.controls}


def _check_finite(session: Session) -> None:
    step = session.progress.global_step
    try:
        session.meter.settle()
    except NonFiniteError as error:
        raise NonFiniteError(f"{error} at step {step}") from error
    if not session.learner.algorithm.is_finite():
        raise NonFiniteError(f"a parameter became non-finite at step {step}")


def _log(session: Session, metrics: Mapping[str, float], callbacks: Sequence[Callback], sinks: Iterable[Sink]) -> None:
    progress = session.progress
    row = {
        "global_step": progress.global_step,
        "episodes": progress.episodes,
        "gradient_steps": progress.gradient_steps,
        "seconds": progress.seconds,
        **progress.episode_metrics(),
        **metrics,
    }
    for sink in sinks:
        sink.log(row, progress.global_step)
    _notify(callbacks, "on_log", session, row)


def _evaluate(session: Session, callbacks: Sequence[Callback], sinks: Iterable[Sink]) -> bool:
    """Whether it was the best evaluation so far."""
    evaluation = session.evaluate(session.config.eval_episodes)
    return _record(evaluation, session.progress.global_step, session, callbacks, sinks)


def _take_in_evaluation(session: Session, callbacks: Sequence[Callback], sinks: Iterable[Sink], *, wait: bool) -> None:
    """The evaluation that ran beside training, if it has ended."""
    finished = session.evaluator.finished(wait=wait)
    if finished and _record(finished.evaluation, finished.step, session, callbacks, sinks):
        for sink in sinks:
            sink.mark_best(finished.step)


def _record(
    evaluation: Evaluation, step: int, session: Session, callbacks: Sequence[Callback], sinks: Iterable[Sink]
) -> bool:
    """Whether it is the best so far."""
    is_best = session.progress.add_evaluation(evaluation)
    for sink in sinks:
        sink.log(evaluation_row(evaluation, step), step)
    _notify(callbacks, "on_evaluation", session, evaluation)
    return is_best


def evaluation_row(evaluation: Evaluation, step: int) -> dict[str, Any]:
    return {"global_step": step} | {f"eval_{name}": value for name, value in evaluation.summary().items()}


def _save(session: Session, callbacks: Sequence[Callback], sinks: Iterable[Sink], *, is_best: bool) -> None:
    session.barrier()
    for sink in sinks:
        sink.save(session, is_best=is_best)
    _notify(callbacks, "on_checkpoint", session)


def _crossed(before: int, after: int) -> Any:
    """Whether a multiple of the interval lies in (before, after]."""
    return lambda interval: interval is not None and before // interval != after // interval


def _notify(callbacks: Iterable[Callback], hook: str, *args: Any) -> None:
    for callback in callbacks:
        getattr(callback, hook)(*args)
