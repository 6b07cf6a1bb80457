"""Suites of environments: each id starts with one line, or says which extra is missing."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.cli import main
from rl_training.envs.factory import EnvSpec, choose_backend, make_envs
from rl_training.envs.suites import SUITES, suite_of
from rl_training.errors import EnvironmentFault
from rl_training.experiment.trust import code_named_in
from support import ScriptedEnv

ONE_OF_EACH = {
    "HalfCheetah-v5": "mujoco",
    "CarRacing-v3": "Box2D",
    "ALE/Breakout-v5": "ale_py",
    "MiniGrid-DoorKey-5x5-v0": "minigrid",
    "MinAtar/Breakout-v1": "minatar",
    "popgym-AutoencodeEasy-v0": "popgym",  # a Tuple
    "dm_control/walker-walk-v0": "dm_control",
    "envpool/CartPole-v1": "envpool",
}
SHORT = ["--total-timesteps", "32", "--num-envs", "2", "--eval-episodes", "0", "--display", "none"]
SMALL = ["--set", "rollout_steps=8", "--set", "num_minibatches=2", "--set", "update_epochs=1"]


@pytest.mark.parametrize(("env_id", "module"), ONE_OF_EACH.items())
def test_an_id_of_each_suite_starts_with_one_line(env_id: str, module: str, tmp_path: Path) -> None:
    pytest.importorskip(module)
    assert main(["train", "ppo", "--env", env_id, "--output-dir", str(tmp_path), *SHORT, *SMALL]) == 0


@pytest.mark.parametrize(("env_id", "module"), ONE_OF_EACH.items())
def test_an_id_whose_suite_is_missing_names_our_extra(
    env_id: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["train", "ppo", "--env", env_id, "--output-dir", str(tmp_path), *SHORT]) == 6
    extra = next((suite.extra for suite in SUITES if suite.module == module), "envpool")
    assert f"pip install 'rl-training[{extra}]'" in capsys.readouterr().err


def test_a_received_id_chooses_from_the_table_and_imports_nothing_else() -> None:
    """The beginning of an id is compared with the table's, never imported."""
    for env_id in (*ONE_OF_EACH, "numpy/Evil-v0", "os-v0"):
        assert code_named_in({"env_id": env_id}) == []
    assert suite_of("numpy/Evil-v0") is None
    before = set(sys.modules)
    with pytest.raises(EnvironmentFault, match="cannot make environment 'antigravity/Evil-v0'"):
        make_envs(EnvSpec("antigravity/Evil-v0"), 1)
    assert "antigravity" not in set(sys.modules) - before


def test_list_envs_shows_what_is_installed_by_suite(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    assert main(["list", "envs", "--json"]) == 0
    suites = {row["name"]: row["suite"] for row in json.loads(capsys.readouterr().out)["envs"]}
    assert suites["CartPole-v1"] == "classic control"
    assert suites["HalfCheetah-v5"] == "mujoco"
    assert "LunarLander-v3" not in suites


def test_envpool_steps_what_it_alone_knows_and_what_is_named_so() -> None:
    pytest.importorskip("envpool")
    assert choose_backend(EnvSpec("WalkerWalk-v1")) == "envpool"
    assert choose_backend(EnvSpec("envpool/CartPole-v1")) == "envpool"
    assert choose_backend(EnvSpec("Pendulum-v1")) == "sync"


def test_an_environment_for_two_players_is_refused_by_name() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(EnvironmentFault, match="ConnectFour-v1 has 2 players"):
        make_envs(EnvSpec("ConnectFour-v1"), 3)


@pytest.mark.parametrize("backend", ["sync", "envpool"])
def test_the_mission_of_minigrid_is_left_out(backend: Any) -> None:
    pytest.importorskip("minigrid" if backend == "sync" else "envpool")
    envs = make_envs(EnvSpec("MiniGrid-DoorKey-5x5-v0", backend=backend), 2)
    assert isinstance(envs.spaces.observation, spaces.Dict)
    assert list(envs.spaces.observation) == ["direction", "image"]
    assert envs.reset(0).keys() == {"direction", "image"}
    assert envs.step(np.zeros(2, dtype=np.int64)).obs.keys() == {"direction", "image"}
    envs.close()


class Spoken(ScriptedEnv):
    """A counter, beside its words and inside a Tuple."""

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.observation_space = space

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return self._said(obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return self._said(obs), *rest

    def _said(self, obs: Any) -> Any:
        return (obs, {"words": "left", "again": obs}) if isinstance(self.observation_space, spaces.Tuple) else obs


def test_a_tuple_becomes_a_mapping_and_its_text_is_left_out() -> None:
    count = ScriptedEnv().observation_space
    space = spaces.Tuple([count, spaces.Dict({"words": spaces.Text(9), "again": count})])
    envs = make_envs(EnvSpec(partial(Spoken, space), backend="sync"), 2)
    assert envs.spaces.observation == spaces.Dict({"0": count, "1": spaces.Dict({"again": count})})
    obs = envs.reset(0)
    np.testing.assert_array_equal(obs["0"], obs["1"]["again"])
    envs.close()
