"""SAC in training: schedules, known answers in Box and Discrete spaces, and options of the critics."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from conformance import StopAtCheckpoint, assert_schedule_is_applied_and_logged, differences, small_config, train_state
from probing import probed
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run
from support import ContextualBandit, DictEnv, IdentityImageEnv, TargetEnv, TwoAnswersEnv

QUICK: dict[str, Any] = {
    "learning_starts": 200,
    "random_steps": 200,
    "replay_ratio": 0.25,
    "batch_size": 64,
    "hidden_sizes": [32, 32],
    "learning_rate": 3e-3,
    "tau": 0.02,
    "gamma": 0.5,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "n-step": {"n_steps": 3},
    "prioritised": {"priority_alpha": 0.6},
    "TQC": {"num_quantiles": 5, "dropped_quantiles": 1},
    "DroQ": {"layer_norm": True, "dropout": 0.01},
    "CrossQ": {"batch_renorm": True, "tau": None},
    "fixed": {"ent_coef": 0.001},
}


@pytest.mark.parametrize(("control", "start", "end"), [("ent_coef", 0.5, 0.1), ("target_entropy", -1.0, -2.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("sac", control, tmp_path, start=start, end=end)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_number_is_found(options: dict[str, Any]) -> None:
    given = {name: value for name, value in {**QUICK, **options}.items() if value is not None}
    assert probed("sac", TargetEnv, 2_500, **given).evaluate(64).return_mean >= -0.1


def test_discrete_actions_are_learned_by_the_same_class() -> None:
    session = probed("sac", ContextualBandit, 3_000, **{**QUICK, "target_entropy": 0.1})
    assert session.evaluate(64).return_mean == 1.0


@pytest.mark.parametrize(
    ("env", "steps", "target"),
    [(IdentityImageEnv, 1_200, 7.5), pytest.param(DictEnv, 1_500, 0.9, marks=pytest.mark.slow)],
)
def test_images_and_mappings_are_taken(env: type[gym.Env], steps: int, target: float) -> None:
    quick = {**QUICK, "learning_rate": 1e-3, "target_entropy": 0.1}
    assert probed("sac", env, steps, **quick).evaluate(32).return_mean >= target


@pytest.mark.parametrize(
    "options", [{}, OPTIONS["TQC"], OPTIONS["DroQ"], OPTIONS["CrossQ"]], ids=["discrete", "TQC", "DroQ", "CrossQ"]
)
def test_a_resumed_run_is_the_same_with_every_option(options: dict[str, Any], tmp_path: Path) -> None:
    changes: dict[str, Any] = {} if options else {"env_id": "CartPole-v1", "wrappers": []}
    config = small_config("sac", tmp_path, algo_kwargs=options, checkpoint_interval=128, **changes)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_spaces_that_it_does_not_take_are_named() -> None:
    with pytest.raises(ConfigError, match=r"needs a Box of actions, got MultiDiscrete"):
        probed("sac", TwoAnswersEnv, 100)
    with pytest.raises(ConfigError, match="num_quantiles: quantiles need a Box"):
        probed("sac", ContextualBandit, 100, num_quantiles=5)

    class Unbounded(TargetEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with pytest.raises(ConfigError, match="actions need finite bounds"):
        probed("sac", Unbounded, 100)


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dropped_quantiles must be fewer than num_quantiles"):
        small_config("sac", tmp_path, algo_kwargs={"num_quantiles": 3, "dropped_quantiles": 3})
    with pytest.raises(ConfigError, match="dropped_quantiles has no effect with num_quantiles 1"):
        small_config("sac", tmp_path, algo_kwargs={"dropped_quantiles": 3})
    with pytest.raises(ConfigError, match="tau has no effect with batch_renorm"):
        small_config("sac", tmp_path, algo_kwargs={"batch_renorm": True, "tau": 0.1})
