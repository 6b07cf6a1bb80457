"""The results of a study: the best values as a preset, the importances of the keys, and a text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_training.experiment.config import layer_of, merge
from rl_training.experiment.files import naming_failures, replacing
from rl_training.runtime.readings import number_text

PRESET_NAME, REPORT_NAME = "best.yaml", "report.txt"
ENOUGH_FOR_IMPORTANCES = 5
MOST_SHOWN = 10


@dataclass(frozen=True)
class TuneResult:
    folder: Path
    trials: dict[str, int]  # how many were completed, pruned, failed
    best_trial: int | None
    best_value: float | None
    best: dict[str, Any]
    importances: dict[str, float]
    preset: Path | None
    report: Path

    def to_dict(self) -> dict[str, Any]:
        paths = {"folder": str(self.folder), "report": str(self.report)}
        return asdict(self) | paths | {"preset": None if self.preset is None else str(self.preset)}


def write_results(
    optuna: Any,
    study: Any,
    folder: Path,
    *,
    base: Mapping[str, Any],
    space: Mapping[str, Any],
    objective: Mapping[str, Any],
) -> TuneResult:
    """Writes the preset of the best trial, if one was completed, and the report."""
    found = study.get_trials(deepcopy=False)
    completed = [trial for trial in found if trial.state.name == "COMPLETE"]
    best = study.best_trial if completed else None
    result = TuneResult(
        folder=folder,
        trials={state.lower(): count for state, count in Counter(trial.state.name for trial in found).items()},
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        best=_values(best, space) if best else {},
        importances=_importances(optuna, study, completed),
        preset=folder / PRESET_NAME if best else None,
        report=folder / REPORT_NAME,
    )
    if result.preset is not None:
        origin = f"# Found by `rl-training tune`: trial {result.best_trial} of {len(found)}, {_judged(objective)}.\n"
        _write(result.preset, origin + yaml.safe_dump(merge(base, layer_of(result.best.items())), sort_keys=False))
    _write(result.report, _report(result, completed, study, space, objective))
    return result


def _values(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's values as a config has them; choices stand in the study as JSON."""
    return {key: json.loads(value) if "choice" in space[key] else value for key, value in trial.params.items()}


def _importances(optuna: Any, study: Any, completed: list[Any]) -> dict[str, float]:
    """The share of each key in the differences between good trials and others; nothing from too few trials."""
    if len(completed) < ENOUGH_FOR_IMPORTANCES or len({trial.value for trial in completed}) == 1:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _judged(objective: Mapping[str, Any]) -> str:
    seeds = ", ".join(map(str, objective["seeds"]))
    if objective["target"] is not None:
        return f"judged by the steps to a return of {objective['target']:g} over seeds {seeds}"
    return f"judged by the mean return over seeds {seeds}, less {objective['penalty']:g} times its deviation"


def _report(
    result: TuneResult, completed: list[Any], study: Any, space: Mapping[str, Any], objective: Mapping[str, Any]
) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in result.trials.items())
    lines = [f"trials: {counts}; {_judged(objective)}"]
    if result.best_trial is None:
        return "\n".join([*lines, "no trial was completed, so there is no best one", *_failures(study), ""])
    ranked = sorted(completed, key=lambda trial: trial.value, reverse=study.direction.name == "MAXIMIZE")
    lines += ["", "best trials"]
    for trial in ranked[:MOST_SHOWN]:
        values = ", ".join(f"{key} {_text(value)}" for key, value in _values(trial, space).items())
        lines.append(f"  {trial.number}: {number_text(trial.value)} ({values})")
    lines += ["", "importances"]
    lines += [f"  {key}: {share:.2f}" for key, share in result.importances.items()]
    if not result.importances:
        lines.append(f"  unknown: they need {ENOUGH_FOR_IMPORTANCES} completed trials that differ")
    return "\n".join([*lines, *_failures(study), ""])


def _text(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _failures(study: Any) -> list[str]:
    failed = [trial for trial in study.get_trials(deepcopy=False) if "error" in trial.user_attrs]
    lines = [f"  {trial.number}: {trial.user_attrs['error']}" for trial in failed]
    return ["", "failed trials", *lines] if lines else []


def _write(path: Path, text: str) -> None:
    with naming_failures(path), replacing(path) as file:
        file.write(text)
