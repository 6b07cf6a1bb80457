"""The table of what IMPALA and APPO reach with asynchronous workers."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks import learn_async

from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset


@pytest.mark.parametrize(
    ("returns", "reached"), [([2700, 2700, 2500], True), ([2700, 2700], False), ([3900, 3900, 900], False)]
)
def test_the_bar_is_that_of_the_preset_over_all_seeds(
    returns: list[float], reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {str(seed): {"return_mean": value} for seed, value in enumerate(returns)}
    monkeypatch.setattr(learn_async, "results", lambda preset: found)
    assert learn_async.reaches_its_bar("impala/hopper") is reached


@pytest.mark.parametrize("preset", learn_async.PRESETS)
def test_the_flags_make_a_run_on_asynchronous_workers_that_step_as_the_preset_does(preset: str) -> None:
    flags = learn_async.flags(preset)
    chosen = {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)
    }
    config = make_config(load_preset(preset) | chosen)
    assert (config.backend, config.ray_mode, config.workers) == ("ray", "async", 2)
    assert config.worker_backend == make_config(load_preset(preset)).backend
