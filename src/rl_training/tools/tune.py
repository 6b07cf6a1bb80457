"""Tuning: Optuna proposes values, runs in processes try them, and a study on disk survives everything but its deletion.

A trial is one proposal, trained once for each seed. A trial that a killed process left unfinished keeps its number and
its values, and its runs are resumed from their checkpoints: no trial is lost, and none is made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from rl_training.errors import ConfigError, RLTrainingError, StoppedBySignal, import_extra
from rl_training.experiment.config import TrainConfig, layer_of, make_config, merge, read_yaml, with_numbers
from rl_training.experiment.files import naming_failures, replacing
from rl_training.experiment.plain import plain
from rl_training.experiment.runs import RunLock
from rl_training.runtime.manager import train_or_resume
from rl_training.runtime.side_by_side import outcomes_side_by_side
from rl_training.runtime.workflows import TrainResult
from rl_training.tools.curves import read_run
from rl_training.tools.space import Dimension, check_space, default_space, parse_space
from rl_training.tools.tune_results import TuneResult, write_results

Pruning = Literal["median", "hyperband", "none"]
EVALUATIONS = 10
STUDY_NAME, DATABASE, SETTINGS = "study", "study.db", "study.yaml"
OF_RAY = ("backend", "workers", "ray_address", "ray_mode")  # they say where trials run, not what is tried
MISSED = 2  # a seed that never reaches the target counts as so many budgets


@dataclass(frozen=True)
class Objective:
    """The number that a trial is judged by: return minus a penalty for spread, or steps to a target."""

    seeds: tuple[int, ...] = (0,)
    penalty: float = 1.0
    target: float | None = None

    @property
    def direction(self) -> str:
        return "maximize" if self.target is None else "minimize"

    def score(self, result: TrainResult, config: TrainConfig) -> float:
        """The score of one seed."""
        if self.target is None:
            assert result.evaluation is not None
            return result.evaluation.return_mean
        assert result.run_dir is not None
        steps, returns = read_run(result.run_dir).series("eval_return_mean")
        reached = steps[returns >= self.target]
        return float(reached[0]) if len(reached) else float(MISSED * config.total_timesteps)

    def value(self, scores: Sequence[float]) -> float:
        """The value of a trial, from the scores of its seeds."""
        spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
        return float(np.mean(scores)) + (-spread if self.target is None else spread) * self.penalty


def _in_silence(_line: str) -> None:
    """Says nothing."""


def tune(
    base: Mapping[str, Any],
    folder: Path | str,
    *,
    space: Mapping[str, Any] | None = None,
    trials: int = 50,
    jobs: int = 1,
    objective: Objective | None = None,
    pruning: Pruning = "median",
    say: Callable[[str], None] | None = None,
) -> TuneResult:
    """Tries `trials` proposals in the folder's study, those of earlier calls included, and writes the best as a preset.

    `base` has the keys of a config; `space` those to vary, by default the packaged ones of the algorithm.
    """
    if trials < 1 or jobs < 1:
        raise ConfigError(f"trials and jobs must be at least 1, got {trials} and {jobs}")
    optuna = import_extra("optuna", "tune")
    config, folder, objective = make_config(base), Path(folder), objective or Objective()
    if not config.eval_episodes:
        raise ConfigError("tuning judges by evaluations: eval_episodes must be at least 1")
    space = default_space(config.algo, base) if space is None else dict(space)
    dimensions = parse_space(space)
    check_space(base, dimensions)
    with naming_failures(folder, ConfigError):
        folder.mkdir(parents=True, exist_ok=True)
    outcomes = _outcomes(config, jobs)
    base = {key: value for key, value in base.items() if config.backend != "ray" or key not in OF_RAY}
    with RunLock(folder):
        _keep_settings(folder, {"base": dict(base), "space": space, "objective": _plain(objective)})
        study = _open_study(optuna, folder, objective, pruning)
        _Tuning(optuna, study, base, dimensions, folder, objective, trials, say or _in_silence).run(outcomes)
        return write_results(optuna, study, folder, base=base, space=space, objective=_plain(objective))


def _outcomes(config: TrainConfig, jobs: int) -> Callable[..., Any]:
    """Where runs are made: in processes of this machine, or of Ray."""
    if config.backend != "ray":
        return partial(outcomes_side_by_side, jobs=jobs)
    from rl_training.distributed.runs import outcomes_on_ray

    return partial(outcomes_on_ray, jobs=jobs, address=config.ray_address)


def _plain(objective: Objective) -> dict[str, Any]:
    return asdict(objective) | {"seeds": list(objective.seeds)}


def _keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes what the study is about; one that is about something else is refused."""
    path, text = folder / SETTINGS, yaml.safe_dump(plain(settings), sort_keys=False)
    if path.is_file():
        before, now = read_yaml(path), with_numbers(yaml.safe_load(text))
        if others := [key for key in now if before.get(key) != now[key]]:
            raise ConfigError(f"{folder} has a study with another {' and '.join(others)}; give this one another name")
    else:
        with naming_failures(path), replacing(path) as file:
            file.write(text)


def _open_study(optuna: Any, folder: Path, objective: Objective, pruning: Pruning) -> Any:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = {
        "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5),
        "hyperband": optuna.pruners.HyperbandPruner,
        "none": optuna.pruners.NopPruner,
    }
    study = optuna.create_study(
        study_name=STUDY_NAME,
        storage=f"sqlite:///{(folder / DATABASE).resolve()}",
        direction=objective.direction,
        pruner=pruners[pruning](),
        load_if_exists=True,
    )
    # Another seed after each start: with the same one, the first proposals would come again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.get_trials(deepcopy=False)), constant_liar=True)
    return study


@dataclass
class _Tuning:
    """The trials under way: which run belongs to which, and what their seeds have reached."""

    optuna: Any
    study: Any
    base: Mapping[str, Any]
    space: Sequence[Dimension]
    folder: Path
    objective: Objective
    trials: int
    say: Callable[[str], None]
    runs: list[tuple[Any, int, TrainConfig]] = field(default_factory=list)  # trial, index of the seed, config
    scores: dict[int, dict[int, float]] = field(default_factory=dict)  # by the trial's number and the seed's index
    over: set[int] = field(default_factory=set)

    def run(self, outcomes: Callable[..., Iterator[tuple[int, TrainResult | RLTrainingError]]]) -> None:
        for number, outcome in outcomes(self.configs(), tell=self.tell, train=train_or_resume):
            trial, index, config = self.runs[number]
            if trial.number in self.over:
                continue
            if isinstance(outcome, StoppedBySignal):
                raise outcome
            if isinstance(outcome, RLTrainingError):
                self.fail(trial, outcome)
                continue
            scores = self.scores.setdefault(trial.number, {})
            scores[index] = self.objective.score(outcome, config)
            if len(scores) == len(self.objective.seeds):
                value = self.objective.value([scores[i] for i in sorted(scores)])
                self.finish(trial, f"{value:.6g}", values=value)

    def configs(self) -> Iterator[TrainConfig]:
        """The runs to make: those of trials that were interrupted, then of new ones."""
        for trial in self.asked():
            try:
                config = self.config_of(trial)
            except ConfigError as error:
                self.fail(trial, error)
                continue
            for index, seed in enumerate(self.objective.seeds):
                if trial.number in self.over:
                    break
                named = config.changed(seed=seed, run_name=f"trial-{trial.number:04d}-seed{seed}")
                self.runs.append((trial, index, named))
                yield named

    def asked(self) -> Iterator[Any]:
        known = self.study.get_trials(deepcopy=False)
        running = self.optuna.trial.TrialState.RUNNING
        yield from (self.optuna.trial.Trial(self.study, each._trial_id) for each in known if each.state == running)
        for _ in range(self.trials - len(known)):
            yield self.study.ask()

    def config_of(self, trial: Any) -> TrainConfig:
        values = [(dimension.key, dimension.suggest(trial)) for dimension in self.space]
        config = make_config(merge(self.base, layer_of(values)))
        interval = config.eval_interval or max(config.total_timesteps // EVALUATIONS, 1)
        target = {} if self.objective.target is None else {"target_return": self.objective.target}
        return config.changed(output_dir=str(self.folder / "runs"), eval_interval=interval, **target)

    def tell(self, number: int, row: dict[str, Any], step: int) -> bool:
        """Takes in an evaluation and returns whether its run is to end.

        It is compared with the same evaluation of the same seed in other trials.
        """
        trial, index, config = self.runs[number]
        if trial.number in self.over:
            return True
        if "eval_return_mean" not in row or step >= config.total_timesteps:
            return False
        assert config.eval_interval is not None
        place = index * -(-config.total_timesteps // config.eval_interval) + step // config.eval_interval
        if place in self.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
            return False
        trial.report(row["eval_return_mean"] * (1 if self.objective.target is None else -1), place)
        if not trial.should_prune():
            return False
        self.finish(trial, f"pruned at step {step:,}", state=self.optuna.trial.TrialState.PRUNED)
        return True

    def fail(self, trial: Any, error: RLTrainingError) -> None:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        trial.set_user_attr("error", first_line)
        self.finish(trial, f"failed: {first_line}", state=self.optuna.trial.TrialState.FAIL)

    def finish(self, trial: Any, outcome: str, **told: Any) -> None:
        self.study.tell(trial, **told)
        self.over.add(trial.number)
        values = ", ".join(f"{key} {value}" for key, value in trial.params.items())
        self.say(f"trial {trial.number}: {outcome} ({values})")
