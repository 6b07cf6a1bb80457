"""Five hundred wrong configs: each is refused by a ConfigError or makes sense; none ends in a traceback."""

from __future__ import annotations

import json
import math
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training import PPO, resume_run
from rl_training.cli import main
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import train_session

BASE: dict[str, Any] = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "num_envs": 2,
    "total_timesteps": 32,
    "eval_episodes": 0,
    "algo_kwargs": {"rollout_steps": 8},
}
NESTED: Any = [[[{"a": [None, {"b": object()}]}]]]
GARBAGE: list[Any] = [
    *(None, True, False, -1, 0, 0.5, -0.5, 1e300, -1e300, math.nan, math.inf, -math.inf, 2**31, 2**63, 10**400),
    *("", "x", "1e3", "\x00", "\ud800", "os:system", "../../etc/passwd", b"x", [], [None], [[]], {}, {"a": None}),
    *({"kind": "linear"}, {"kind": []}, {"kind": "piecewise", "points": [[-1, 1]]}, {"kind": "linear", "end": "x"}),
    *(NESTED, {1: 2}, set(), np.float32(0.5), np.int64(3), np.array([1, 2]), np.bool_(True), complex(1, 2), object()),
]
SMALL_FOR_ALL = {"replay_capacity": 64, "learning_starts": 8, "batch_size": 4, "size": "nano", "sequence_length": 4}


def mutations(count: int) -> list[tuple[str, str, Any]]:
    """(algorithm, key, value), where `algo_kwargs.` stands before an algorithm's own keys."""
    rng = random.Random(0)
    keys = [key for key in TrainConfig.model_fields if key not in ("output_dir", "backend", "learners")]
    drawn = []
    for index in range(count):
        algo = rng.choice(list(REGISTRY))
        learner = REGISTRY[algo].learner_class()
        names = [*learner.Params.model_fields, *(f"{control.name}_schedule" for control in learner.controls)]
        names += [f"{control.name}_warmup_steps" for control in learner.controls]
        key = rng.choice(keys) if index % 2 else f"algo_kwargs.{rng.choice(names)}"
        drawn.append((algo, key, rng.choice(GARBAGE)))
    return drawn


def mutated(algo: str, key: str, value: Any) -> dict[str, Any]:
    own = REGISTRY[algo].learner_class().Params.model_fields
    small = {name: number for name, number in SMALL_FOR_ALL.items() if name in own}
    config = merge(BASE, {"algo": algo, "algo_kwargs": small})
    head, dot, name = key.partition(".")
    return merge(config, {head: {name: value}}) if dot else {**config, head: value}


@pytest.mark.parametrize("part", range(10))
def test_a_mutated_config_is_refused_or_makes_sense(part: int) -> None:
    for algo, key, value in mutations(500)[part::10]:
        try:
            config = make_config(mutated(algo, key, value))
        except ConfigError:
            continue
        resolved = config.resolved()
        assert make_config(resolved).resolved() == resolved, (algo, key, value)
        if key != "env_kwargs":  # which are the environment's to refuse
            assert yaml.safe_load(yaml.safe_dump(resolved)) == resolved, (algo, key, value)
            json.dumps(resolved, allow_nan=False)


def test_a_mutation_that_is_accepted_starts_or_is_refused_in_one_line() -> None:
    """The quick algorithms, two iterations each."""
    accepted = 0
    for algo, key, value in mutations(500):
        if algo not in ("ppo", "a2c", "impala", "trpo") or key in ("seed", "loggers", "env_kwargs"):
            continue
        try:
            config = make_config(mutated(algo, key, value))
            with closing(Session(config.model_copy(update={"total_timesteps": 32, "eval_episodes": 0}))) as session:
                train_session(session)
        except RLTrainingError:
            continue
        accepted += 1
    assert accepted > 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"threads": 1_000_000}, "threads"),
        ({"threads": 2**31}, "threads"),
        ({"num_envs": 10**9}, "num_envs"),
        ({"num_envs": True}, "num_envs: expected no truth value"),
        ({"target_return": math.nan}, "target_return"),
        ({"step_timeout_s": math.inf}, "step_timeout_s"),
        ({"total_timesteps": 10**400}, "total_timesteps: an integer of"),
        ({"tasks": 3}, "tasks"),
        ({"run_name": "a\0b"}, "run_name"),
        ({"algo_kwargs": {"adam_eps": True}}, "adam_eps"),
        ({"algo_kwargs": {"adam_eps": math.inf}}, "adam_eps"),
        ({"algo_kwargs": {"adam_eps": 1e300}}, "adam_eps"),
        ({"algo_kwargs": {"ent_coef_schedule": {"kind": "linear", "start": 1e300}}}, "ent_coef_schedule"),
        ({"algo_kwargs": {"hidden_sizes": [True]}}, "hidden_sizes"),
        ({"algo_kwargs": {"learning_rate": 0}}, "learning_rate"),
        ({"algo_kwargs": {"learning_rate_schedule": 0}}, "learning_rate_schedule"),
        ({"algo_kwargs": {"learning_rate_schedule": {"kind": "linear", "start": 0.0}}}, "learning_rate_schedule"),
        ({"algo_kwargs": {"gamma_schedule": "linear"}}, "gamma_schedule: missing key 'end'"),
        ({"algo_kwargs": {"gae_lambda_schedule": "exponential"}}, "gae_lambda_schedule: missing key 'end'"),
        ({"algo_kwargs": {"ent_coef_schedule": {"kind": "piecewise", "points": [[-5, 1]]}}}, "a step is 0 or more"),
        ({"algo_kwargs": {"learning_rate_warmup_steps": 2.5}}, "learning_rate_warmup_steps"),
        ({"env_kwargs": {"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}, "deep"),
    ],
    ids=str,
)
def test_nonsense_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_config(merge(BASE, changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algo_kwargs": {"rollout_steps": 10**9}}, "rollout_steps, num_envs: not enough memory"),
        ({"algo_kwargs": {"hidden_sizes": [10**6, 10**6]}}, "networks: not enough memory"),
        ({"algo_kwargs": {"hidden_sizes": [2**62, 2**62]}}, "networks: not enough memory"),
        ({"algo": "muzero", "algo_kwargs": {"replay_capacity": 10**12}}, r"replay_capacity: .*replay [\d,.]+ GB.*free"),
        ({"algo": "muzero", "algo_kwargs": {"num_simulations": 10**12}}, "num_simulations, num_envs"),
        ({"algo": "muzero", "algo_kwargs": {"batch_size": 10**12}}, "batch_size"),
    ],
    ids=str,
)
def test_what_cannot_fit_in_memory_is_refused_before_the_start(
    changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    config = make_config(merge(BASE, {"output_dir": str(tmp_path)}, changes))
    with pytest.raises(ConfigError, match=told):
        train_run(config)
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_may_be_written_as_floats_everywhere() -> None:
    kwargs = {"num_minibatches": 1e1, "learning_rate_warmup_steps": 1e4}
    resolved = make_config({**BASE, "algo_kwargs": kwargs}).resolved()["algo_kwargs"]
    assert resolved["num_minibatches"] == 10
    assert make_config({**BASE, "algo_kwargs": kwargs}).parsed_params().controls.resolve(0)["learning_rate"] > 0


def test_a_learning_rate_may_end_at_zero() -> None:
    make_config({**BASE, "algo_kwargs": {"learning_rate_schedule": "linear"}})


def test_numpy_scalars_become_numbers_where_they_enter(tmp_path: Path) -> None:
    agent = PPO(
        "CartPole-v1",
        num_envs=np.int64(2),
        seed=np.uint8(3),
        env_kwargs={"sutton_barto_reward": np.bool_(True)},
        learning_rate=np.float32(0.001),
        hidden_sizes=np.array([8, 8]),
        rollout_steps=np.int32(8),
        ent_coef_schedule={"kind": "linear", "start": np.float64(0.01), "end": np.float32(0)},
        learning_rate_warmup_steps=np.int16(4),
        output_dir=tmp_path,
    )
    agent.train(np.int64(32))
    agent.save(tmp_path / "model")
    config = PPO.load(tmp_path / "model").config
    assert config.env_kwargs == {"sutton_barto_reward": True}
    assert type(config.algo_kwargs["learning_rate"]) is float
    assert config.algo_kwargs["hidden_sizes"] == [8, 8]


def test_resuming_with_one_parameter_keeps_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"rollout_steps": 8, "hidden_sizes": [8], "ent_coef": 0.02, "learning_rate": 0.001}
    run = train_run(make_config({**BASE, "output_dir": str(tmp_path), "algo_kwargs": given})).run_dir
    assert run is not None
    resume_run(run, total_timesteps=64, algo_kwargs={"learning_rate": 0.5, "num_minibatches": np.int64(2)})
    stored = yaml.safe_load((run / "config.yaml").read_text())["algo_kwargs"]
    assert {key: stored[key] for key in given} == {**given, "learning_rate": 0.5}
    assert "algo_kwargs.learning_rate: 0.001 -> 0.5" in caplog.text
    assert "algo_kwargs.num_minibatches: default -> 2" in caplog.text
    assert "ent_coef" not in caplog.text


def test_a_dry_run_tells_the_memory_that_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "CartPole-v1", "--set", "replay_capacity=1000000", "--dry-run"]
    assert main(["train", "muzero", *flags]) == 0
    shown = capsys.readouterr().out
    # A row: 4 numbers of 4 bytes, an action of 8, a probability of 4 for each of 2 actions, and 32 beside them.
    assert "replay 64.0 MB" in shown
    assert "networks" in shown
    assert make_config(yaml.safe_load(shown)).algo_kwargs["replay_capacity"] == 1_000_000
    assert main(["train", "muzero", *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_bytes"]["replay"] == 64_000_000
