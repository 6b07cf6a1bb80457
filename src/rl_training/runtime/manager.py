"""Runs as a library: set up, run, resume and list them. What a run writes, it writes here."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from rl_training.envs.sources import EnvSource
from rl_training.errors import CheckpointError, ConfigError, NonFiniteError, RLTrainingError, StoppedBySignal
from rl_training.experiment.checkpointing import CheckpointStore
from rl_training.experiment.config import TrainConfig, make_config, read_yaml
from rl_training.experiment.files import cause_of, naming_failures, replacing
from rl_training.experiment.logging import Logger, import_loggers, open_loggers
from rl_training.experiment.runs import RunLock, create_run_dir, list_runs, run_dir_of
from rl_training.experiment.starts import note_start
from rl_training.experiment.trackers import Tracker
from rl_training.kernels import told_of_compiling
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.display import Display, Mode, open_display
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.fine_tuning import start_from
from rl_training.runtime.opening import open_checkpoint
from rl_training.runtime.quickest import with_quickest_backend
from rl_training.runtime.session import Session, seed_globals
from rl_training.runtime.stopping import stoppable
from rl_training.runtime.tracking import TrackedFiles
from rl_training.runtime.workflows import TrainResult, train_session

__all__ = ["list_runs", "resume_run", "train_run", "trainer_for"]

PREDECESSOR_S = 60.0  # a cluster may need so long to end what a killed process had started

_log = logging.getLogger(__name__)


class Checkpoints(Callback):
    """Saves the session in a run directory. It comes before the users' callbacks: what they break is not in it."""

    def __init__(self, run_dir: Path, config: TrainConfig) -> None:
        self.store = CheckpointStore(run_dir, keep=config.keep_checkpoints)

    def on_checkpoint(self, session: Session) -> None:
        self.store.save(session.progress.global_step, session.state_dict())

    def on_best(self, session: Session, step: int) -> None:
        self.store.mark_best(step)


class OnScreen(Callback):
    """Shows rows and evaluations."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self.display.update(row, session.progress.global_step)

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self.display.update(evaluation.row(), evaluation.step)


class RowRecorder(Callback):
    """Writes rows to the loggers of a run. It comes late, so that it has what others added."""

    def __init__(self, run_dir: Path, config: TrainConfig, *, resume_step: int | None = None) -> None:
        self._run_dir = run_dir
        self._failed = False
        self._loggers: list[Logger] = open_loggers(config.loggers, run_dir, resume_step=resume_step)

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self._write(row, session.progress.global_step)

    def on_evaluation(self, session: Session, evaluation: Evaluation) -> None:
        self._write(evaluation.row(), evaluation.step)

    def trackers(self) -> list[Tracker]:
        return [logger for logger in self._loggers if isinstance(logger, Tracker)]

    def close(self) -> None:
        for logger in self._loggers:
            with self._surviving(logger):
                logger.close()

    def _write(self, row: dict[str, Any], step: int) -> None:
        for logger in self._loggers:
            with self._surviving(logger):
                logger.log(row, step)

    @contextmanager
    def _surviving(self, logger: Logger) -> Iterator[None]:
        """A run that can still save itself goes on without its metrics; the first failure is told."""
        try:
            yield
        except OSError as error:
            if not self._failed:
                name = type(logger).__name__
                _log.warning("%s: %s cannot write (%s); the run goes on", self._run_dir, name, cause_of(error))
            self._failed = True


def train_run(
    config: TrainConfig,
    *,
    env: EnvSource | None = None,
    callbacks: Sequence[Callback] = (),
    display: Mode = "none",
) -> TrainResult:
    """Trains into a new run directory."""
    import_loggers(config.loggers)  # one that is missing leaves no empty run behind
    seed_globals(config.seed)
    with stoppable():
        config, told = with_quickest_backend(config, env)
        with closing(Session(config, env=env)) as session:
            config = session.config
            if config.init_from is not None:
                start_from(session, config.init_from, config.init_checkpoint)
            run_dir = create_run_dir(Path(config.output_dir), config.algo, config.env_id, config.seed, config.run_name)
            with RunLock(run_dir):
                return _run(session, run_dir, callbacks=callbacks, display=display, resume_step=None, told=told)


def resume_run(
    run_dir: Path | str,
    *,
    which: str | int = "latest",
    total_timesteps: int | None = None,
    stretch_schedules: bool = False,
    env: EnvSource | None = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    display: Mode = "none",
    **changes: Any,
) -> TrainResult:
    """Goes on from the latest checkpoint as if nothing had happened, to the old budget or to a larger one.

    From another one (`which`: best or a step) the run takes a new course: its rows after that step are dropped.
    `changes` are other keys of the config; mappings such as `algo_kwargs` are merged key by key. Where environments are
    stepped elsewhere than before (`backend`, `workers`, `ray_mode`), their episodes begin anew.
    """
    run_dir = Path(run_dir)
    if not (run_dir / "config.yaml").is_file():
        raise CheckpointError(f"{run_dir} is not a run directory: it has no config.yaml")
    with stoppable(), RunLock(run_dir):
        opened = open_checkpoint(run_dir, which=which, env=env, trust=trust, changes=changes)
        if told := differing_keys(opened.state["config"], opened.config.stored(), changes):
            _log.warning("resuming with %s", "; ".join(told))
        config = resumed_config(opened.config, total_timesteps, stretch_schedules=stretch_schedules)
        with closing(opened._replace(config=config).session()) as session:
            step = session.progress.global_step
            warn_of_ended_schedule(session)
            return _run(session, run_dir, callbacks=callbacks, display=display, resume_step=step)


def train_or_resume(config: TrainConfig, *, callbacks: Sequence[Callback] = ()) -> TrainResult:
    """Goes on with the run of the config's `run_name` if it has a checkpoint; otherwise begins it anew in its place.

    What is left of a killed process may still be writing the run, on Ray for some seconds: its end is waited for.
    """
    run_dir = run_dir_of(Path(config.output_dir), config.algo, config.env_id, config.run_name or "unnamed")
    if run_dir.is_dir():
        with RunLock(run_dir, patience_s=PREDECESSOR_S):
            pass
    if CheckpointStore(run_dir, keep=config.keep_checkpoints).latest() is not None:
        return resume_run(run_dir, callbacks=callbacks)
    if run_dir.is_dir():
        shutil.rmtree(run_dir)
    return train_run(config, callbacks=callbacks)


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any], among: Iterable[str]) -> list[str]:
    """`key: old -> new` for the keys that differ; those of mappings are told one by one."""
    told = []
    for key in among:
        if isinstance(new.get(key), Mapping) and isinstance(old.get(key), Mapping):
            told += [f"{key}.{line}" for line in differing_keys(old[key], new[key], new[key])]
        elif old.get(key) != new.get(key):
            told.append(f"{key}: {old.get(key, 'default')} -> {new.get(key)}")
    return told


def resumed_config(config: TrainConfig, total_timesteps: int | None, *, stretch_schedules: bool) -> TrainConfig:
    """The config with another budget; schedules end where they were to end, unless they are to be stretched."""
    if total_timesteps is None:
        return config
    horizon = None if stretch_schedules else config.schedule_horizon or config.total_timesteps
    return config.changed(total_timesteps=total_timesteps, schedule_horizon=horizon)


def warn_of_ended_schedule(session: Session) -> None:
    """More steps with a learning rate of 0 teach nothing."""
    config, step = session.config, session.progress.global_step
    rates = [session.controls.resolve(at).get("learning_rate", 1.0) for at in (step, config.total_timesteps)]
    if step < config.total_timesteps and not any(rates):
        _log.warning(
            "the learning rate is 0 from step %s to the end, because its schedule has ended: NOTHING WILL BE LEARNED. "
            "--stretch-schedules (stretch_schedules=True) makes schedules end with the new budget",
            f"{step:,}",
        )


def _run(
    session: Session,
    run_dir: Path,
    *,
    callbacks: Sequence[Callback],
    display: Mode,
    resume_step: int | None,
    told: str | None = None,
) -> TrainResult:
    """Trains in a directory whose lock this process holds; `told` is said first."""
    config = session.config
    write_config(run_dir, config)
    note_start(run_dir, session.progress.global_step)
    checkpoints = Checkpoints(run_dir, config)
    with naming_failures(run_dir):
        rows = RowRecorder(run_dir, config, resume_step=resume_step)
    try:
        with display_of(session, display) as shown, told_of_compiling(shown.message):
            for line in filter(None, (told, f"run: {run_dir}")):
                shown.message(line)
            tracked = TrackedFiles(run_dir, rows.trackers(), config.tracker_artifacts)
            listeners = [checkpoints, *callbacks, rows, tracked, OnScreen(shown)]
            result = train_session(session, callbacks=listeners, run_dir=run_dir)
    except NonFiniteError as error:
        good = checkpoints.store.latest()
        where = f"the last good checkpoint is {good}" if good else "there is no checkpoint yet"
        raise NonFiniteError(f"{error}; {where}") from error
    except StoppedBySignal as stop:
        raise StoppedBySignal(stop.signum, farewell(session, run_dir)) from None
    finally:
        rows.close()
    if not session.progress.gradient_steps and result.stop_reason is None:
        raise RLTrainingError(
            f"{config.algo} has learned nothing: {result.global_step} steps passed without an update; it needs more "
            f"of them (total_timesteps), or a smaller rollout_steps or learning_starts; run: {run_dir}"
        )
    return result


def farewell(session: Session, run_dir: Path) -> str:
    """The last words of a run that a signal stopped."""
    step, saved = session.progress.global_step, session.saved_step
    if not saved:
        return f"stopped at step {step:,}, before there was anything to save"
    kept = "saved" if saved == step else f"the checkpoint of step {saved:,} is good"
    return f"stopped at step {step:,}; {kept}; go on with: rl-training resume {run_dir}"


def display_of(session: Session, mode: Mode) -> Display:
    """The display of a run, with its title and what never moves."""
    config, moving = session.config, session.controls.moving()
    values = session.control_values()
    return open_display(
        config.total_timesteps,
        f"{config.algo} on {config.env_id}, seed {config.seed}",
        controls=moving,
        constants={name: value for name, value in values.items() if name not in moving},
        mode=mode,
    )


def trainer_for(learner: type) -> Callable[..., TrainResult]:
    """`train_<algo>`: the functional entry point of a learner's algorithm."""

    def train(config: TrainConfig | Mapping[str, Any], **options: Any) -> TrainResult:
        config = config if isinstance(config, TrainConfig) else make_config(config)
        if not issubclass(config.learner_class(), learner):
            raise ConfigError(f"this trains {learner.__name__}; the config says algo {config.algo!r}")
        return train_run(config, **options)

    train.__doc__ = f"Trains {learner.__name__} by a config into a run directory; options as `train_run`."
    return train


def write_config(run_dir: Path, config: TrainConfig) -> None:
    path = run_dir / "config.yaml"
    with naming_failures(path), replacing(path) as file:
        file.write(yaml.safe_dump(config.resolved(), sort_keys=False))


def run_config(run_dir: Path | str) -> TrainConfig:
    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{run_dir} is not a run directory: it has no config.yaml")
    return make_config(read_yaml(path))
