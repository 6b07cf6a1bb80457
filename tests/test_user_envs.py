"""Environments as users have them: instances, callables, vector environments, ids, modules and files."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rl_training
from conformance import differences, small_config, train_state
from rl_training import A2C, PPO, evaluate_checkpoint, resume_run
from rl_training.cli import main
from rl_training.errors import CheckpointError, ConfigError, EnvironmentFault
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import make_config
from rl_training.experiment.registry import REGISTRY
from support import ContextualBandit, HiddenWalk, ProtocolWalk, ScriptedEnv

SMALL: dict[str, Any] = {"rollout_steps": 8, "num_minibatches": 1, "update_epochs": 1}
MODULE = """
import gymnasium as gym
import beside_it
def make(**kwargs): return gym.make(beside_it.ENV_ID, **kwargs)
def make_vector(num_envs): return gym.vector.SyncVectorEnv([make] * num_envs)
gym.register("Mine-v0", entry_point=make)
"""


def trained(env: Any, **keys: Any) -> PPO:
    agent = PPO(env, **SMALL, **keys)
    agent.train(64)
    return agent


def vector_of(*lengths: int, **options: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda length=length: ScriptedEnv(length) for length in lengths], **options)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module of the user's own, which is not on the path of this process."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "beside_it.py").write_text('ENV_ID = "CartPole-v1"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "beside_it"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_an_instance_trains_and_evaluates_as_the_one_environment_it_is() -> None:
    env = gym.make("CartPole-v1")
    agent = trained(env)
    assert agent.config.num_envs == 1
    assert agent.config.env_id == "python:CartPole-v1"
    assert agent.evaluate(episodes=3)["episodes"] == 3
    agent.train(64)  # evaluation has played on the same environment: training began a new episode
    agent.close()
    env.reset()  # the user made it, so that only the user closes it
    env.step(0)


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_every_managed_class_takes_an_instance(algo: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path)
    managed = getattr(rl_training, REGISTRY[algo].class_name)
    agent = managed(gym.make(config.env_id, max_episode_steps=20), eval_episodes=0, **config.algo_kwargs)
    assert agent.config.num_envs == 1
    agent.train(32)
    assert agent.evaluate(episodes=1)["length_max"] <= 20


def test_an_instance_for_several_environments_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match=r"num_envs: 4 are wanted.*pass a callable"):
        PPO(gym.make("CartPole-v1"), num_envs=4)


@pytest.mark.parametrize("options", [{}, {"backend": "ray"}, {"backend": "async"}], ids=str)
def test_what_an_instance_cannot_do_says_to_pass_a_callable(options: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, EnvironmentFault), match="pass a callable"):
        PPO(ScriptedEnv(), **(options or {"env_kwargs": {"length": 2}}))


@pytest.mark.parametrize("env", [HiddenWalk, ProtocolWalk])
def test_resume_is_exact_with_an_instance(env: type, tmp_path: Path) -> None:
    """Each evaluation lends the only environment, and training begins new episodes after it, resumed or not."""
    keys = {"algo": "ppo", "env_id": "x", "eval_interval": 32, "eval_episodes": 2, "algo_kwargs": SMALL}
    config = make_config({**keys, "output_dir": str(tmp_path), "total_timesteps": 64})
    whole = train_state(config.model_copy(update={"total_timesteps": 128}), env=env())[1]
    half, _ = train_state(config, env=env())
    resume_run(half, total_timesteps=128, stretch_schedules=True, env=env())
    assert differences(load_checkpoint(half), whole) == []


def test_a_vector_environment_brings_its_number() -> None:
    agent = trained(vector_of(2, 3, 4))
    assert agent.config.num_envs == 3
    assert agent.evaluate(episodes=3)["return_mean"] == pytest.approx((3 + 6 + 10) / 3)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("wrapped", [False, True])
def test_both_ways_to_restart_give_the_true_returns(mode: AutoresetMode, wrapped: bool) -> None:
    envs: Any = vector_of(2, 3, autoreset_mode=mode)
    agent = trained(gym.wrappers.vector.RecordEpisodeStatistics(envs) if wrapped else envs)
    result = agent.evaluate(episodes=4)
    assert result["return_min"] == 1 + 2
    assert result["return_max"] == 1 + 2 + 3


def test_a_vector_environment_that_does_not_restart_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="autoreset_mode"):
        PPO(vector_of(2, autoreset_mode=AutoresetMode.DISABLED))


def test_a_callable_may_make_a_vector_environment_of_the_size_it_is_told() -> None:
    def make(num_envs: int) -> SyncVectorEnv:
        return vector_of(*[3] * num_envs)

    agent = trained(make, num_envs=5)
    assert agent.policy is not None
    assert agent.evaluate(episodes=2)["return_mean"] == 6


def test_a_callable_that_makes_a_vector_environment_of_its_own_size_is_taken_as_it_is() -> None:
    def make() -> SyncVectorEnv:
        return vector_of(3, 3)

    assert trained(make).config.num_envs == 2
    with pytest.raises(ConfigError, match=r"num_envs: 8 are wanted.* has 2"):
        PPO(make, num_envs=8)


def test_wrappers_are_not_for_vector_environments() -> None:
    with pytest.raises(EnvironmentFault, match="wrap it first"):
        PPO(vector_of(3), wrappers=["flatten"])


@pytest.mark.parametrize("name", ["mine.py:make", "./mine.py:make_vector"])
def test_a_factory_in_a_file_is_found_with_what_lies_beside_it(name: str, own_folder: Path) -> None:
    agent = trained(name, num_envs=2)
    assert agent.config.env_id == name
    assert agent.config.num_envs == 2
    agent.evaluate(episodes=1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent.py:make", "there is no file absent.py"),
        ("mine.py:absent", "no attribute 'absent'"),
        ("broken.py:make", "ZeroDivisionError"),
    ],
)
def test_a_file_that_gives_no_factory_is_named(name: str, told: str, own_folder: Path) -> None:
    (own_folder / "broken.py").write_text("1 / 0")
    with pytest.raises(EnvironmentFault, match=rf"cannot import the environment factory '{name}'.*{told}"):
        PPO(name)


@pytest.mark.parametrize("name", ["mine:make", "mine:Mine-v0", "mine.py:make"])
def test_the_working_directory_is_importable_from_the_command_line(name: str, own_folder: Path) -> None:
    command = ["train", "a2c", "--env", name, "--total-timesteps", "64", "--eval-episodes", "1", "--display", "none"]
    assert main(command) == 0


def test_nothing_in_the_working_directory_is_imported_unless_the_user_names_code(
    own_folder: Path, tmp_path: Path
) -> None:
    """A run that was received may hold a file with the name of a library."""
    PPO("CartPole-v1", num_envs=1).save(tmp_path / "model")
    assert main(["evaluate", str(tmp_path / "model"), "--episodes", "1"]) == 0
    assert str(own_folder) not in sys.path


OTHERS: dict[str, Callable[[], Any]] = {
    "an id": lambda: "CartPole-v0",
    "a callable": lambda: lambda: gym.make("CartPole-v1", max_episode_steps=7),
    "an instance": lambda: gym.make("CartPole-v1", max_episode_steps=7),
    "a vector environment": lambda: gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_loaded_agent_goes_on_in_another_environment_with_new_episodes(other: str, tmp_path: Path) -> None:
    path = trained("CartPole-v1", num_envs=2).save(tmp_path / "model")
    agent = PPO.load(path, env=OTHERS[other]())
    assert agent.num_timesteps >= 64
    agent.train(32)
    assert evaluate_checkpoint(path, env=OTHERS[other](), episodes=3).summary()["length_max"] <= 500


def test_two_callables_of_one_name_are_told_apart_by_what_they_make(tmp_path: Path) -> None:
    path = trained(lambda: ProtocolWalk(), num_envs=2).save(tmp_path / "model")
    agent = PPO.load(path, env=lambda: gym.wrappers.TimeLimit(ProtocolWalk(), 5))
    agent.train(16)


def test_another_environment_must_have_the_spaces_of_the_first(tmp_path: Path) -> None:
    path = trained("CartPole-v1", num_envs=2).save(tmp_path / "model")
    with pytest.raises(
        CheckpointError, match=r"python:ContextualBandit has other spaces.*Discrete\(4\).*Discrete\(2\)"
    ):
        PPO.load(path, env=ContextualBandit)


def test_changes_at_loading_are_keys_as_the_class_takes_them(tmp_path: Path) -> None:
    path = trained("CartPole-v1", num_envs=2).save(tmp_path / "model")
    agent = PPO.load(path, clip_coef=0.11, num_envs=3)
    assert agent.config.algo_kwargs["clip_coef"] == 0.11
    assert agent.config.algo_kwargs["rollout_steps"] == 8
    assert agent._session.move_controls()["clip_coef"] == 0.11


def test_an_environment_that_no_config_can_hold_is_asked_for_by_name(tmp_path: Path) -> None:
    def make_my_robot() -> gym.Env:
        return ContextualBandit()

    path = A2C(make_my_robot).save(tmp_path / "model")
    with pytest.raises(EnvironmentFault, match=r"'make_my_robot'.*pass it again as env="):
        A2C.load(path)
    observation = np.zeros(4, dtype=np.float32)
    assert A2C.load(path, env=make_my_robot).predict(observation)[0] in range(4)


def test_the_page_on_your_own_environment_is_true(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "your_environment.md").read_text()
    robot, use, *_ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (own_folder / "robot.py").write_text(robot)
    sys.path.insert(0, str(own_folder))
    scope: dict[str, Any] = {}
    exec(use, scope)
    assert "success " in capsys.readouterr().out
    assert scope["agent"].num_timesteps == 4096
    command = ["train", "ppo", "--env", "robot.py:Robot", "--init-from", "robot_model", "--set", "env_kwargs.goal=5"]
    small = ["--total-timesteps", "256", "--num-envs", "4", "--set", "rollout_steps=32", "--display", "none"]
    assert main([*command, *small]) == 0
    assert "success " in capsys.readouterr().out
    sys.modules.pop("robot", None)


def test_a_partial_is_called_as_what_it_completes() -> None:
    agent = PPO(functools.partial(ScriptedEnv, length=2), num_envs=1)
    assert agent.config.env_id == "python:ScriptedEnv"
