"""Algorithms from outside of the package: registered in Python, or offered by an installed package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

import rl_training
from rl_training.algorithms.ppo import PPOParams
from rl_training.api import algorithms
from rl_training.cli import main
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.experiment.presets import list_presets
from rl_training.runtime.ppo_trainer import PPOLearner
from rl_training.tools.conformance import BrokenPromise, check_algorithm

PRESET = """
algo: shy_ppo
env_id: CartPole-v1
num_envs: 2
total_timesteps: 128
eval_episodes: 2
algo_kwargs: {rollout_steps: 16, num_minibatches: 1, update_epochs: 1, shyness: 0.5}
"""


class ShyParams(PPOParams):
    shyness: float = Field(0.0, ge=0.0, description="how much of each update is left undone")


class ShyPPOLearner(PPOLearner):
    """PPO whose learning rate is smaller by its shyness."""

    Params: ClassVar[type[PPOParams]] = ShyParams


class ForgetfulLearner(ShyPPOLearner):
    """Does not save its random stream."""

    state_parts = ("algorithm", "reward_normalizer")


@pytest.fixture
def row(tmp_path: Path) -> Iterator[rl_training.AlgorithmRow]:
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "cartpole.yaml").write_text(PRESET)
    yield rl_training.AlgorithmRow(
        name="shy_ppo",
        class_name="ShyPPO",
        title="Shy PPO",
        paper="none",
        year=2026,
        learner="test_plugins:ShyPPOLearner",
        presets=tmp_path / "presets",
    )
    registry.REGISTRY.pop("shy_ppo", None)
    algorithms.MANAGED.pop("ShyPPO", None)
    registry._loaded.clear()


def test_a_registered_algorithm_has_its_class_its_name_and_its_presets(
    row: rl_training.AlgorithmRow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ShyPPO = rl_training.register(row)
    assert rl_training.ShyPPO is ShyPPO is __import__("rl_training.api", fromlist=["ShyPPO"]).ShyPPO
    assert "shyness (float): how much of each update" in str(ShyPPO.__doc__)
    assert ShyPPO.from_preset("shy_ppo/cartpole").config.algo_kwargs["shyness"] == 0.5
    assert "shy_ppo/cartpole" in list_presets()
    flags = ["--output-dir", str(tmp_path / "runs"), "--display", "none"]
    assert main(["train", "shy_ppo", "--env", "CartPole-v1", "--total-timesteps", "64", *flags]) == 0
    assert main(["train", "--config", "shy_ppo/cartpole", *flags]) == 0
    assert main(["list", "algorithms"]) == main(["list", "presets"]) == main(["show", "shy_ppo"]) == 0
    told = capsys.readouterr().out
    assert "Shy PPO" in told
    assert "shy_ppo/cartpole" in told
    assert "how much of each update is left undone" in told
    with pytest.raises(ConfigError, match="did you mean 'shyness'"):
        ShyPPO("CartPole-v1", shynes=1.0)


def test_an_algorithm_from_outside_conforms(row: rl_training.AlgorithmRow, tmp_path: Path) -> None:
    rl_training.register(row)
    check_algorithm(rl_training.make_config("shy_ppo/cartpole"), folder=tmp_path / "runs")


def test_a_promise_that_is_not_kept_is_named(row: rl_training.AlgorithmRow, tmp_path: Path) -> None:
    rl_training.register(row.__class__(**{**vars(row), "learner": ForgetfulLearner}))
    with pytest.raises(BrokenPromise, match="a resumed run equals one that was never stopped"):
        check_algorithm(rl_training.make_config("shy_ppo/cartpole"), folder=tmp_path / "runs")


def test_a_name_that_is_taken_is_refused(row: rl_training.AlgorithmRow) -> None:
    rl_training.register(row)
    rl_training.register(row)  # the same again does no harm
    for change in ({"name": "ppo"}, {"name": "shyer_ppo", "class_name": "PPO"}):
        with pytest.raises(ConfigError, match="is there already: Proximal Policy Optimization"):
            rl_training.register(row.__class__(**{**vars(row), **change}))


@pytest.fixture
def installed(row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that offers the algorithm, and another one whose entry point is broken."""
    keys = {**vars(row), "presets": str(row.presets)}
    (tmp_path / "shy_package.py").write_text(f"from rl_training import AlgorithmRow\nROW = AlgorithmRow(**{keys!r})")
    about = tmp_path / "shy_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shy-package\nVersion: 1.0\n")
    points = "shy_ppo = shy_package:ROW\nbroken = no.such.module:ROW\n"
    (about / "entry_points.txt").write_text(f"[rl_training.algorithms]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._loaded.clear()
    yield
    sys.modules.pop("shy_package", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_offers_algorithms_by_entry_points(caplog: pytest.LogCaptureFixture) -> None:
    assert rl_training.make_config("shy_ppo/cartpole").algo == "shy_ppo"
    assert rl_training.ShyPPO.algo == "shy_ppo"
    assert "the algorithm broken (no.such.module:ROW) cannot be loaded" in caplog.text
