"""`run_training`: the only training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rl_training.errors import NonFiniteError
from rl_training.runtime.callbacks import Callback, Callbacks
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.session import Session
from rl_training.runtime.stopping import Interruption, active


def run_training(session: Session, callbacks: Sequence[Callback] = ()) -> Evaluation | None:
    """Collects, learns, logs, evaluates and saves until the budget is spent or somebody asks to stop.

    Returns the evaluation of the final policy, unless the config wants none or a signal ended the run.
    """
    with session.kernels():
        return _run(session, Callbacks(callbacks))


def _run(session: Session, listeners: Callback) -> Evaluation | None:
    listeners.on_start(session)
    stopper = active()
    stopper.has_saved = session.progress.global_step > 0  # it comes from a checkpoint then
    try:
        _train(session, listeners)
        final = _final_evaluation(session, listeners)
    except Interruption as interruption:
        interruption.reraise_fault()
        if session.progress.global_step > session.saved_step and stopper.may_save:
            _save(session, listeners)
        final = None
    listeners.on_end(session)
    return final


def _train(session: Session, listeners: Callback) -> None:
    config, progress = session.config, session.progress
    saved_at = -1
    while progress.global_step < config.total_timesteps and session.stop_reason is None:
        before = progress.global_step
        controls = _iterate(session, listeners)
        due = _crossed(before, progress.global_step)
        if due(config.log_interval):
            listeners.on_log(session, _row(session, controls))
        evaluates = bool(config.eval_episodes) and due(config.eval_interval)
        is_best, in_background = False, session.evaluator is not None
        if in_background:
            _take_in_evaluation(session, listeners, wait=evaluates)
        elif evaluates:
            is_best = _record(session.evaluate(config.eval_episodes), session, listeners)
        # What is evaluated beside training is saved now: should it turn out to be the best, it is there.
        if is_best or due(config.checkpoint_interval) or (evaluates and in_background):
            _save(session, listeners)
            saved_at = progress.global_step
        if is_best:
            listeners.on_best(session, progress.global_step)
        if evaluates and in_background:
            session.evaluate_in_background()
    if session.evaluator is not None:
        _take_in_evaluation(session, listeners, wait=not session.was_interrupted)
    if saved_at != progress.global_step:
        _save(session, listeners)


def _iterate(session: Session, listeners: Callback) -> dict[str, float]:
    """Collects one rollout and learns from it; returns the controls as they were used."""
    started, cpu_started = time.perf_counter(), time.process_time()
    learner, progress = session.learner, session.progress
    controls = session.apply_controls()
    rollout = session.collect()
    if learner.bears_stale_data and rollout.num_steps:
        learner.note(policy_lag=progress.iterations - rollout.policy_version[rollout.valid.cpu()].float().mean())
    progress.global_step += rollout.num_steps
    progress.add_episodes(rollout.episodes)
    for result in session.learn(rollout, controls):
        session.meter.add(result.metrics)
        progress.gradient_steps += result.num_gradient_steps
        listeners.on_update(session, result)
        active().check()
    session.meter.add(learner.take_notes())
    _check_finite(session)
    progress.iterations += 1
    progress.seconds += time.perf_counter() - started
    progress.cpu_seconds += time.process_time() - cpu_started
    return controls


def _check_finite(session: Session) -> None:
    step = session.progress.global_step
    try:
        session.meter.settle()
    except NonFiniteError as error:
        raise NonFiniteError(f"{error} at step {step}") from error
    if not session.learner.algorithm.is_finite():
        raise NonFiniteError(f"a parameter became non-finite at step {step}")


def _row(session: Session, controls: dict[str, float]) -> dict[str, Any]:
    progress = session.progress
    return {
        "global_step": progress.global_step,
        "episodes": progress.episodes,
        "gradient_steps": progress.gradient_steps,
        "seconds": progress.seconds,
        "cpu_seconds": progress.cpu_seconds,
        **progress.episode_metrics(),
        **session.meter.flush(),
        **session.collector.metrics(),
        **controls,
    }


def _take_in_evaluation(session: Session, listeners: Callback, *, wait: bool) -> None:
    """Records the evaluation that ran beside training, if it has ended."""
    finished = session.evaluator.finished(wait=wait)
    if finished is not None and _record(finished, session, listeners):
        listeners.on_best(session, finished.step)


def _record(evaluation: Evaluation, session: Session, listeners: Callback) -> bool:
    """Returns whether the evaluation is the best so far."""
    is_best = session.progress.add_evaluation(evaluation)
    listeners.on_evaluation(session, evaluation)
    return is_best


def _save(session: Session, listeners: Callback) -> None:
    try:
        with active().interruptible():
            session.barrier()
    except Interruption as interruption:  # an environment that does not even reset, or no time for it
        interruption.reraise_fault()
        session.collector_is_lost = True
    with active().saving():
        listeners.on_checkpoint(session)
    session.saved_step = session.progress.global_step


def _final_evaluation(session: Session, listeners: Callback) -> Evaluation | None:
    """Evaluates the policy that training ended with. The state that was saved does not know of it.

    A run that goes on later is then equal to one that was never at its end.
    """
    if not session.config.eval_episodes or session.was_interrupted:
        return None
    best, reason = session.progress.best_return, session.stop_reason
    evaluation = session.evaluate(session.config.eval_episodes)
    listeners.on_evaluation(session, evaluation)
    session.stop_reason = reason  # there is nothing left to stop
    if best is None or evaluation.return_mean > best:
        listeners.on_best(session, evaluation.step)
    return evaluation


def _crossed(before: int, after: int) -> Callable[[int | None], bool]:
    """Tells of an interval whether a multiple of it lies in (before, after]."""
    return lambda interval: interval is not None and before // interval != after // interval
