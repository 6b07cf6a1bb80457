"""The bars that `make learn` holds results against."""

from __future__ import annotations

import pytest
from benchmarks import learn

from rl_training.experiment.presets import list_presets


@pytest.mark.parametrize(
    ("returns", "reached"),
    [([5000, 4900], True), ([5000, 4700], False), ([8000, 2000], False), ([], False)],
    ids=["all above", "mean below", "one seed under 60 %", "not measured"],
)
def test_a_bar_on_the_mean_bears_no_seed_far_below_it(
    returns: list[float], reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {str(seed): {"return_mean": value} for seed, value in enumerate(returns)}
    monkeypatch.setattr(learn, "load", lambda preset: results)
    assert learn.reaches_its_bar("ppo/halfcheetah") is reached


def test_a_bar_may_be_on_another_metric_than_the_return(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"0": {"return_mean": -2.0, "success_rate": 1.0}, "1": {"return_mean": -1.0, "success_rate": 0.8}}
    monkeypatch.setattr(learn, "load", lambda preset: results)
    assert learn.bars("sac/fetchreach") == {"success_rate": pytest.approx(0.57)}
    assert not learn.reaches_its_bar("sac/fetchreach")
    results["1"]["success_rate"] = 0.9
    assert learn.reaches_its_bar("sac/fetchreach")


def test_a_preset_may_have_bars_on_several_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"0": {"success_rate": 0.96, "success_rate/rollouts:200": 0.85}}
    monkeypatch.setattr(learn, "load", lambda preset: results)
    assert learn.reaches_its_bar("gumbel_muzero/connect_four")
    results["0"]["success_rate/rollouts:200"] = 0.7
    assert not learn.reaches_its_bar("gumbel_muzero/connect_four")


def test_sixty_percent_of_a_negative_bar_is_below_it() -> None:
    assert learn.OnMean(-230, "").lowest == pytest.approx(-322)


def test_every_bar_is_that_of_a_preset() -> None:
    assert set(learn.PRESETS) <= set(list_presets())
