"""Tuning: spaces are checked before anything is trained, trials are judged and pruned, and a study goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import preset_of, trials_in
from rl_training.data.rollout import Episode
from rl_training.errors import ConfigError, NonFiniteError, StoppedBySignal
from rl_training.experiment.config import TrainConfig, layer_of, make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.manager import train_or_resume
from rl_training.runtime.side_by_side import outcomes_side_by_side
from rl_training.runtime.workflows import TrainResult
from rl_training.tools import tune as tune_module
from rl_training.tools.space import check_space, default_space, parse_space
from rl_training.tools.tune import Objective, tune

optuna = pytest.importorskip("optuna")

BASE = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "total_timesteps": 100,
    "eval_interval": 10,
    "algo_kwargs": {"rollout_steps": 8, "num_minibatches": 1},
}
SPACE = {"learning_rate": {"log": [1e-5, 1e-2]}, "clip_coef_schedule": {"choice": ["linear", {"kind": "constant"}]}}


def result_of(score: float) -> TrainResult:
    return TrainResult(100, None, Evaluation((Episode(score, 1, ""),)))


class Played:
    """Stands in for processes: a run's score is a function of its config, told ten times on the way."""

    def __init__(self, score: Any) -> None:
        self.score = score
        self.started: list[TrainConfig] = []
        self.ended: list[str | None] = []

    def __call__(self, configs: Iterable[TrainConfig], *, tell: Any, **_: Any) -> Iterator[tuple[int, Any]]:
        for number, config in enumerate(configs):
            self.started.append(config)
            score = self.score(config)
            for step in range(10, 100, 10):
                if isinstance(score, float) and tell(number, {"eval_return_mean": score * step}, step):
                    self.ended.append(config.run_name)
                    score = StoppedBySignal(15)
            yield number, result_of(score * 100) if isinstance(score, float) else score


def play(monkeypatch: pytest.MonkeyPatch, score: Any) -> Played:
    played = Played(score)
    monkeypatch.setattr(tune_module, "outcomes_side_by_side", played)
    return played


def rate(config: TrainConfig) -> float:
    return float(config.algo_kwargs["learning_rate"])


def test_the_best_values_become_a_preset_that_says_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(monkeypatch, rate)
    result = tune(BASE, tmp_path, space=SPACE, trials=8, pruning="none")
    assert result.trials == {"complete": 8}
    best = max(played.started, key=rate)
    assert result.best["learning_rate"] == rate(best)
    assert result.best["clip_coef_schedule"] in ("linear", {"kind": "constant"})
    assert result.preset is not None
    assert make_config(load_preset(str(result.preset))).algo_kwargs == best.algo_kwargs
    assert f"trial {result.best_trial} of 8" in result.preset.read_text().splitlines()[0]
    assert set(result.importances) == {"learning_rate", "clip_coef_schedule"}
    assert max(result.importances, key=lambda key: result.importances[key]) == "learning_rate"
    assert "best trials" in result.report.read_text()


def test_a_trial_is_its_mean_over_seeds_less_their_deviation() -> None:
    assert Objective((0, 1), penalty=0.5).value([10.0, 14.0]) == pytest.approx(12.0 - 0.5 * 8**0.5)
    assert Objective((0,)).value([10.0]) == 10.0
    assert Objective((0, 1), target=5.0).value([100.0, 100.0]) == 100.0
    assert Objective(target=5.0).direction == "minimize"


def test_every_seed_of_a_trial_has_its_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(monkeypatch, lambda config: 1.0 + config.seed)
    result = tune(BASE, tmp_path, space=SPACE, trials=2, objective=Objective((0, 3), penalty=0.0))
    assert [(config.seed, config.run_name) for config in played.started] == [
        (0, "trial-0000-seed0"),
        (3, "trial-0000-seed3"),
        (0, "trial-0001-seed0"),
        (3, "trial-0001-seed3"),
    ]
    assert result.best_value == pytest.approx((100.0 + 400.0) / 2)


def test_a_trial_that_falls_behind_is_pruned_with_all_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 0.1, 9.0, 9.0])
    played = play(monkeypatch, lambda _config: next(scores))
    result = tune(BASE, tmp_path, space=SPACE, trials=7, objective=Objective((0, 1)))
    assert result.trials == {"complete": 6, "pruned": 1}
    assert played.ended == ["trial-0005-seed0"]
    assert "trial-0005-seed1" not in {config.run_name for config in played.started}
    assert result.best_trial == 6


def test_a_trial_that_fails_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([NonFiniteError("loss became nan at step 7"), 2.0])
    play(monkeypatch, lambda _config: next(outcomes))
    result = tune(BASE, tmp_path, space=SPACE, trials=2)
    assert result.trials == {"fail": 1, "complete": 1}
    assert "0: loss became nan at step 7" in result.report.read_text()


def test_an_interrupted_trial_keeps_its_number_and_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What kill -9 leaves behind is a trial that still runs according to the study."""

    def killed_in_the_third(config: TrainConfig) -> float:
        if config.run_name == "trial-0002-seed0":
            raise KeyboardInterrupt
        return rate(config)

    first = play(monkeypatch, killed_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        tune(BASE, tmp_path, space=SPACE, trials=5)
    assert [state for _, state in trials_in(tmp_path)] == ["COMPLETE", "COMPLETE", "RUNNING"]
    again = play(monkeypatch, rate)
    tune(BASE, tmp_path, space=SPACE, trials=5, pruning="none")
    assert [config.run_name for config in again.started] == [f"trial-000{n}-seed0" for n in (2, 3, 4)]
    assert again.started[0].algo_kwargs == first.started[2].algo_kwargs
    assert trials_in(tmp_path) == [(number, "COMPLETE") for number in range(5)]
    rates = {rate(config) for config in (*first.started, *again.started)}
    assert len(rates) == 5  # a new start does not propose the same again
    nothing = play(monkeypatch, rate)
    tune(BASE, tmp_path, space=SPACE, trials=5)
    assert nothing.started == []


def test_a_study_about_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, rate)
    tune(BASE, tmp_path, space=SPACE, trials=1)
    with pytest.raises(ConfigError, match="a study with another base; give this one another name"):
        tune({**BASE, "num_envs": 4}, tmp_path, space=SPACE, trials=2)
    with pytest.raises(ConfigError, match="trials and jobs must be at least 1"):
        tune(BASE, tmp_path, trials=0)


def test_a_run_that_was_begun_is_resumed_and_one_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    config = make_config({**BASE, "eval_episodes": 1, "output_dir": str(tmp_path), "run_name": "trial", "num_envs": 1})
    left = tmp_path / "ppo" / "CartPole-v1" / "trial"
    left.mkdir(parents=True)
    (left / "metrics.jsonl").write_text('{"global_step": 7}\n')
    first = train_or_resume(config)
    assert first.run_dir == left
    assert '"global_step": 7}' not in (left / "metrics.jsonl").read_text()
    again = train_or_resume(config)
    assert (again.run_dir, again.global_step) == (left, first.global_step)
    assert again.evaluation == first.evaluation


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_every_algorithm_has_a_space_whose_every_value_is_valid(algo: str) -> None:
    base = load_preset(preset_of(algo))
    space = default_space(algo, base)
    assert len(space) >= 5
    check_space(base, parse_space(space))


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        ({"learning_rat": {"log": [1e-5, 1e-2]}}, "learning_rat = 1e-05: .*did you mean 'learning_rate'"),
        ({"learning_rate": {"lgo": [1e-5, 1e-2]}}, "takes one of float, int, log, choice, .*did you mean 'log'"),
        ({"learning_rate": {"log": [0, 1e-2]}}, "log needs bounds above 0"),
        ({"learning_rate": {"float": [1e-2, 1e-5]}}, "the lower one first"),
        ({"update_epochs": {"int": [1, 2.5]}}, "int needs whole numbers"),
        ({"gamma": {"float": [0.9, 1.5]}}, "gamma = 1.5"),
        ({"gamma": 0.9}, "must be a mapping"),
        ({}, "a search space is a mapping"),
    ],
)
def test_a_wrong_space_is_told_before_anything_is_trained(space: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        tune(BASE, tmp_path / "study", space=space)
    assert not (tmp_path / "study").exists()


def test_a_key_that_a_schedule_overrides_is_refused_or_left_out() -> None:
    schedule = {"kind": "linear", "start": 0.001, "end": 0.0}
    base = merge(BASE, layer_of([("ent_coef_schedule", schedule)]))
    with pytest.raises(ConfigError, match="ent_coef has no effect, because ent_coef_schedule says where it starts"):
        check_space(base, parse_space({"ent_coef": {"float": [0.0, 0.1]}}))
    assert "ent_coef" not in default_space("ppo", base)
    assert "ent_coef" in default_space("ppo", BASE)


def test_whole_bounds_give_whole_numbers_and_any_key_may_vary() -> None:
    space = parse_space({"num_envs": {"log": [1, 64]}, "env_kwargs.max_episode_steps": {"int": [10, 50], "step": 10}})
    trial = optuna.trial.FixedTrial({"num_envs": 8, "env_kwargs.max_episode_steps": 30})
    values = [(dimension.key, dimension.suggest(trial)) for dimension in space]
    assert layer_of(values) == {"num_envs": 8, "env_kwargs": {"max_episode_steps": 30}}


def test_a_run_is_ended_when_its_row_is_answered_with_true(tmp_path: Path) -> None:
    """The run saves itself, so that nothing is lost if it is wanted after all."""
    changes = {"output_dir": str(tmp_path), "num_envs": 1, "total_timesteps": 10_000_000, "log_interval": 8}
    config = make_config({**BASE, **changes, "eval_interval": None})
    rows: list[int] = []

    def tell(_number: int, _row: dict[str, Any], step: int) -> bool:
        rows.append(step)
        return True

    ((number, outcome),) = outcomes_side_by_side([config], jobs=2, tell=tell)
    assert number == 0
    assert rows
    assert isinstance(outcome, StoppedBySignal)
    assert list(tmp_path.glob("ppo/CartPole-v1/*/checkpoints/step-*"))
