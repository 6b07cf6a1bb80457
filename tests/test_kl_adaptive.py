"""The KL-adaptive learning rate: its rule by hand, who may have it, and what a resumed run has come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conformance import StopAtCheckpoint, small_config, train_state, training_rows
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.controls import CLIP_COEF, KL_LEARNING_RATE, ControlSet
from rl_training.runtime.manager import resume_run

FOLLOWS_KL = {"ppo", "recurrent_ppo", "ppg", "gail", "appo"}


def controls_from(**spec: Any) -> ControlSet:
    keys = {"learning_rate": 1e-3, "learning_rate_schedule": {"kind": "kl_adaptive", **spec}}
    return ControlSet.parse((KL_LEARNING_RATE,), keys, horizon=100)


def updates(*kls: float) -> list[dict[str, Any]]:
    return [{"approx_kl": torch.tensor(kl)} for kl in kls]


def test_the_rule_by_hand() -> None:
    controls = controls_from(target=0.01, factor=2, min=4e-4, max=4e-3)
    after = controls.adapt({}, updates(0.02, 0.04))  # 0.03 on average, more than 2 * 0.01
    assert after == {"learning_rate": 5e-4}
    assert controls.adapt(after, updates(0.03)) == {"learning_rate": 4e-4}  # not below min
    assert controls.adapt(after, updates(0.02, 0.006)) == after  # within the tolerance
    assert controls.adapt(after, updates(0.004)) == {"learning_rate": 1e-3}
    assert controls.adapt({"learning_rate": 3e-3}, updates(0.0)) == {"learning_rate": 4e-3}  # not above max
    assert controls.adapt(after, [{"bc_loss": 1.0}]) == after  # nothing measured


def test_warmup_multiplies_the_adapted_value() -> None:
    keys = {"learning_rate": 1e-3, "learning_rate_schedule": "kl_adaptive", "learning_rate_warmup_steps": 10}
    controls = ControlSet.parse((KL_LEARNING_RATE,), keys, horizon=100)
    assert controls.resolve(4, {"learning_rate": 4e-3}) == {"learning_rate": 2e-3}
    assert controls.resolve(4) == {"learning_rate": 5e-4}


def test_bounds_that_were_narrowed_hold_for_a_value_of_before() -> None:
    assert controls_from(max=2e-3).resolve(0, {"learning_rate": 5e-3}) == {"learning_rate": 2e-3}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"target": 0}, "needs target above 0 and factor above 1, got target 0.0"),
        ({"factor": 1}, "needs target above 0 and factor above 1"),
        ({"max": 1e-4}, "needs 0 < min <= start <= max, got min 1e-05, start 0.001 and max 0.0001"),
        ({"min": 0}, "needs 0 < min <= start <= max"),
        ({"targt": 0.1}, "unknown key 'targt' for kind 'kl_adaptive'; did you mean 'target'?"),
        ({"min": "x"}, ".min: expected a finite number"),
    ],
)
def test_bad_settings_are_refused_by_name(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^learning_rate_schedule.*{complaint}"):
        controls_from(**spec)


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_it_is_for_algorithms_that_measure_what_a_learning_rate_does(algo: str, tmp_path: Path) -> None:
    kwargs = {"learning_rate_schedule": {"kind": "kl_adaptive", "start": 1e-3}}
    if algo in FOLLOWS_KL:
        small_config(algo, tmp_path, algo_kwargs=kwargs)
        return
    with pytest.raises(ConfigError, match=r"learning_rate_schedule.*'kl_adaptive' follows the KL .* ppo, rec"):
        small_config(algo, tmp_path, algo_kwargs=kwargs)


def test_no_other_control_follows_a_kl() -> None:
    keys = {"clip_coef": 1e-3, "clip_coef_schedule": "kl_adaptive"}
    with pytest.raises(ValueError, match="here none does for clip_coef"):
        ControlSet.parse((CLIP_COEF,), keys, horizon=100)


@pytest.mark.parametrize("algo", ["ppo", "appo"])
def test_each_rollout_has_the_rate_that_the_kl_before_it_asks_for(algo: str, tmp_path: Path) -> None:
    spec = {"kind": "kl_adaptive", "target": 1e-3, "factor": 2.0}
    kwargs = {"learning_rate": 1e-3, "learning_rate_schedule": spec}
    run_dir, state = train_state(small_config(algo, tmp_path, algo_kwargs=kwargs, total_timesteps=512))
    rows = training_rows(run_dir)
    controls = controls_from(target=1e-3, factor=2.0)
    expected = {"learning_rate": 1e-3}
    for row in rows:
        assert row["learning_rate"] == expected["learning_rate"]
        expected = controls.adapt(expected, updates(row["approx_kl"]))
    assert len({row["learning_rate"] for row in rows}) > 1
    assert state["progress"]["adapted"] == expected


def test_a_resumed_run_goes_on_with_the_rate_it_had_come_to(tmp_path: Path) -> None:
    kwargs = {"learning_rate": 1e-3, "learning_rate_schedule": {"kind": "kl_adaptive", "target": 1e-3}}
    config = small_config("ppo", tmp_path, algo_kwargs=kwargs, total_timesteps=512, checkpoint_interval=256)
    whole_dir, whole = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert stopped["progress"]["adapted"]["learning_rate"] != 1e-3
    resume_run(run_dir)
    assert load_checkpoint(run_dir)["progress"]["adapted"] == whole["progress"]["adapted"]
    rates = [[row["learning_rate"] for row in training_rows(d)] for d in (whole_dir, run_dir)]
    assert rates[0] == rates[1]
    weights = [s["learner"]["algorithm"]["policy"] for s in (whole, load_checkpoint(run_dir))]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
