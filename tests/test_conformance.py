"""What every algorithm of the registry must do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from contextlib import closing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from conformance import (
    SLOW_TWINS,
    StopAtCheckpoint,
    differences,
    preset_of,
    rows_of,
    small_config,
    train_state,
    training_rows,
)
from rl_training import algorithms, api, models
from rl_training.algorithms.params import Params
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset
from rl_training.experiment.registry import REGISTRY, algorithm
from rl_training.models.actor_critic import PolicyOptions
from rl_training.models.muzero import MuZeroOptions
from rl_training.models.torsos import TorsoOptions
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import HER_RATIO, Control
from rl_training.runtime.loop import run_training
from rl_training.runtime.manager import resume_run, run_config
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import evaluate_checkpoint, load_session, predict
from rl_training.search.policy import SearchPolicy

ALGORITHMS = list(REGISTRY)
KERNELS = pytest.mark.parametrize("kernels", ["auto", "off"])  # and without: the plain code alone
KERNELS_FIRST = pytest.mark.parametrize("kernels", ["auto", pytest.param("off", marks=pytest.mark.slow)])
CONTROLS = [(name, control) for name in ALGORITHMS for control in algorithm(name).learner_class().controls]


@KERNELS_FIRST
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_logs_every_control_and_the_returns_and_can_be_read_back(algo: str, kernels: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path, kernels=kernels)
    run_dir, state = train_state(config)
    row = training_rows(run_dir)[-1]
    session_controls = config.parsed_params().controls.resolve(0)
    assert session_controls.keys() <= row.keys()
    assert row["global_step"] == state["progress"]["global_step"] >= config.total_timesteps
    assert {"return_mean", "episode_length_mean", "gradient_steps"} <= row.keys()
    assert rows_of(run_dir)[-1]["eval_episodes"] == 2
    assert run_config(run_dir).resolved() == config.resolved()


@KERNELS
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_stopped_and_resumed_run_equals_the_uninterrupted_one(algo: str, kernels: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path, kernels=kernels, checkpoint_interval=128)
    _, uninterrupted = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert stopped["progress"]["global_step"] < uninterrupted["progress"]["global_step"]
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


@KERNELS_FIRST
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_one_seed_is_one_run_and_another_seed_another(algo: str, kernels: str, tmp_path: Path) -> None:
    (_, first), (_, again) = (train_state(small_config(algo, tmp_path, kernels=kernels, seed=1)) for _ in range(2))
    _, other = train_state(small_config(algo, tmp_path, kernels=kernels, seed=2))
    assert differences(first, again) == []
    assert any("policy" in name for name in differences(first, other))


@KERNELS_FIRST
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_checkpoint_evaluates_and_predicts(algo: str, kernels: str, tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config(algo, tmp_path, kernels=kernels))
    evaluation = evaluate_checkpoint(run_dir, episodes=3, seed=5)
    assert evaluation == evaluate_checkpoint(run_dir, episodes=3, seed=5)
    assert len(evaluation.returns) == 3
    session = load_session(run_dir)
    space = session.spaces.observation
    space.seed(0)
    batch = np.stack([space.sample() for _ in range(4)])
    actions, state = predict(session, batch)
    single, _ = predict(session, batch[0])
    assert actions.shape[0] == 4
    assert len(state) == 4
    np.testing.assert_allclose(np.asarray(single, dtype=float), np.asarray(actions[0], dtype=float), atol=1e-5)
    assert all(session.spaces.action.contains(action) for action in actions)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_unknown_key_is_refused_with_the_nearest_name(algo: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'learning_rat'.*did you mean 'learning_rate'"):
        small_config(algo, tmp_path, algo_kwargs={"learning_rat": 1.0})


@pytest.fixture(scope="module")
def plain_states() -> dict[str, Any]:
    """The state after a run without schedules, by algorithm: what every control's run is compared with."""
    return {}


@pytest.mark.parametrize(
    ("algo", "control"),
    [
        pytest.param(name, control, id=f"{name}-{control.name}", marks=[pytest.mark.slow] if name in SLOW_TWINS else [])
        for name, control in CONTROLS
    ],
)
def test_a_control_changes_the_training_itself(
    algo: str, control: Control, tmp_path: Path, plain_states: dict[str, Any]
) -> None:
    """A control that changes the log and nothing else is a bug, and so is one of which only the fixed value is read."""
    needed = NEEDED.get(control.name.partition("_")[0], {})
    elsewhere = GOALS[algo] if control is HER_RATIO else {}
    base = small_config(algo, tmp_path, total_timesteps=512, algo_kwargs=needed, **elsewhere)
    plain = f"{algo} {needed} {elsewhere}"
    if plain not in plain_states:
        plain_states[plain] = train_state(base)[1]
    value = base.parsed_params().params.model_dump()[control.name]
    other = _another(control, value)
    # It has three quarters of the run to make a difference, so it goes further away.
    points = [[0, NEVER_BINDS if value is None else value], [128, 0.1 * other if value and other < value else other]]
    schedule = {"kind": "piecewise", "points": points, "interpolation": "step"}
    for changes in ({control.name: other}, {f"{control.name}_schedule": schedule}):
        kwargs = {**needed, **changes}
        _, state = train_state(small_config(algo, tmp_path, total_timesteps=512, algo_kwargs=kwargs, **elsewhere))
        changed = [name for name in differences(plain_states[plain], state) if name.startswith("/learner/algorithm/")]
        assert any("policy" in name or "model" in name for name in changed), changes


NEVER_BINDS = 1e6
NEEDED = {"rnd": {"rnd": True}}  # the option without which the controls of that prefix have nothing to move
POINT = {"env_id": "goal_envs:PointReach", "wrappers": []}
GOALS = {"dqn": {"env_id": "goal_envs:BitFlip"}, "sac": POINT, "td3": POINT}  # environments with goals to relabel


def _another(control: Control, value: Any) -> float:
    if value is None:
        return 1e-7  # an optional bound, off by default: one that always binds
    if control.integer:
        return value + 1
    return 0.1 * value if value else min(0.5, control.high)


POLICY_GRADIENTS = [name for name in ALGORITHMS if issubclass(algorithm(name).learner_class(), ActorCriticLearner)]


@pytest.mark.parametrize("algo", POLICY_GRADIENTS)
def test_observation_statistics_move_after_the_updates(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy that is updated is the one that acted: the ratios of a first pass are one."""
    config = small_config(algo, tmp_path, algo_kwargs={"normalize_obs": True})
    with closing(Session(config)) as session:
        learner, stats = session.learner, session.policy.normalizer.stats
        update, means = learner.update, []
        monkeypatch.setattr(learner, "update", lambda batch: means.append(stats.mean.clone()) or update(batch))
        for _ in range(2):
            before, seen = stats.mean.clone(), len(means)
            list(learner.learn(session.collector.collect(learner.rollout_steps)))
            assert len(means) > seen
            assert all(torch.equal(mean, before) for mean in means[seen:])
            assert not torch.equal(stats.mean, before)


@pytest.mark.parametrize("algo", POLICY_GRADIENTS)
def test_a_rollout_of_resets_alone_teaches_nothing(algo: str, tmp_path: Path) -> None:
    """A native CartPole spends a row on each reset: with rollouts of one row, some are nothing else."""
    short = {"rollout_steps": 1, "sequence_length": 1 if algo == "recurrent_ppo" else None, "normalize_reward": True}
    native = {"num_envs": 1, "backend": "native", "wrappers": [], "total_timesteps": 60}
    config = small_config(algo, tmp_path, algo_kwargs=short, **native)
    with closing(Session(config)) as session:
        run_training(session)
        progress = session.progress
        assert progress.episodes >= 1
        assert progress.iterations > progress.global_step == 60
        assert session.learner.algorithm.is_finite()


@pytest.mark.parametrize("algo", POLICY_GRADIENTS)
def test_no_reward_of_an_old_episode_is_counted_after_new_ones_began_everywhere(algo: str, tmp_path: Path) -> None:
    """A checkpoint of environments that hide their state begins new episodes."""
    with closing(
        Session(small_config(algo, tmp_path, backend="async", algo_kwargs={"normalize_reward": True}))
    ) as session:
        list(session.learner.learn(session.collector.collect(session.learner.rollout_steps)))
        assert session.learner.reward_normalizer.traces
        assert not session.collector.restorable
        session.barrier()
        assert session.learner.reward_normalizer.traces == {}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_learner_algorithm_and_search_read_the_same_parameters(algo: str, tmp_path: Path) -> None:
    with closing(Session(small_config(algo, tmp_path))) as session:
        learner, values = session.learner, session.controls.resolve(0)
        readers = [learner, learner.algorithm, *([session.policy] if isinstance(session.policy, SearchPolicy) else [])]
        assert all(reader.params is learner.params for reader in readers)
        learner.params.move({name: value + 1 for name, value in values.items()})
        for reader in readers:
            assert {name: getattr(reader.params, name) for name in values} == {n: v + 1 for n, v in values.items()}
        session.move_controls()
        assert {name: getattr(learner.algorithm.params, name) for name in values} == values


# Constants of the papers that no algorithm lets a user change.
FIXED = {("LaProp", "betas"), ("ReturnScale", "rate"), ("ReturnScale", "low"), ("ReturnScale", "high")}


def classes_in(package: ModuleType) -> set[type]:
    """Every class that a module of the package defines."""
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(name) for name in names]
    found = [kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)]
    return {kind for kind in found if kind.__module__ in names}


def test_no_algorithm_repeats_a_default_in_its_constructor() -> None:
    """A default is written in the `Params` and nowhere else."""
    constructed = [
        kind
        for kind in classes_in(algorithms)
        if "__init__" in vars(kind) and not is_dataclass(kind) and not issubclass(kind, tuple)
    ]
    assert len(constructed) > 10
    repeated = {
        (kind.__name__, parameter.name)
        for kind in constructed
        for parameter in inspect.signature(kind.__init__).parameters.values()
        if parameter.default is not inspect.Parameter.empty
    }
    assert repeated - FIXED == set()


def test_options_of_networks_have_no_defaults_of_their_own() -> None:
    parameters = {name for kind in classes_in(algorithms) if issubclass(kind, Params) for name in kind.model_fields}
    options = [kind for kind in classes_in(models) if is_dataclass(kind)]
    assert {TorsoOptions, PolicyOptions, MuZeroOptions} <= set(options)
    repeated = {
        (kind.__name__, field.name)
        for kind in options
        for field in fields(kind)
        if field.name in parameters and (field.default, field.default_factory) != (MISSING, MISSING)
    }
    assert repeated == set()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_algorithm_is_exported_everywhere(algo: str) -> None:
    row = REGISTRY[algo]
    managed = getattr(rl_training, row.class_name)
    assert managed is getattr(api, row.class_name)
    assert managed is getattr(importlib.import_module("rl_training.api.algorithms"), row.class_name)
    assert managed.algo == algo
    learners = importlib.import_module("rl_training.algorithms")
    assert getattr(learners, row.learner.partition(":")[2]) is row.learner_class()
    trainer = importlib.import_module(row.learner.partition(":")[0])
    assert callable(getattr(trainer, f"train_{algo}"))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_preset_states_only_what_it_changes(algo: str) -> None:
    preset = load_preset(preset_of(algo))
    assert preset["algo"] == algo
    defaults = algorithm(algo).learner_class().Params()
    repeated = [
        key
        for key, value in preset.get("algo_kwargs", {}).items()
        if key in type(defaults).model_fields
        and f"{key}_schedule" not in preset["algo_kwargs"]
        and getattr(defaults, key) == getattr(make_config(preset).parsed_params().params, key)
        and value is not None
    ]
    assert repeated == []


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_managed_agent_saves_loads_and_trains_on(algo: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path).model_dump()
    for key in ("algo", "loggers"):  # an agent in memory has no files to log to
        config.pop(key)
    managed = getattr(rl_training, REGISTRY[algo].class_name)
    agent = managed(config.pop("env_id"), **{**config, "eval_episodes": 0})
    agent.train(128)
    path = agent.save(tmp_path / "model")
    twin = managed.load(path)
    agent.train(128)
    twin.train(128)
    assert differences(Session.state_dict(agent._session), Session.state_dict(twin._session)) == []
