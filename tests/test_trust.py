"""A run that a stranger made imports nothing that the user did not choose."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from conformance import small_config, train_state
from rl_training import PPO, Dreamer, evaluate_checkpoint, resume_run
from rl_training.cli import main
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import CheckpointStore, load_checkpoint, save_tree
from rl_training.experiment.trust import UntrustedError, code_named_in, is_own, key_path, sign
from rl_training.runtime.opening import load_policy, load_session, open_checkpoint
from rl_training.runtime.workflows import predict
from rl_training.tools.serve import service_for
from rl_training.tools.serving import Limits
from support import ScriptedDictEnv

CANARY = """
import pathlib
pathlib.Path(__file__).with_suffix(".sang").touch()
import gymnasium as gym
def make(**kwargs): return gym.make("CartPole-v1", disable_env_checker=True, **kwargs)
def wrap(env): return env
gym.register("Canary-v0", entry_point=make)
"""
OBS = "[0.0, 0.0, 0.0, 0.0]"


class Canary:
    """A module that leaves a file when it is imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "canary.py").write_text(CANARY)

    @property
    def sang(self) -> bool:
        return (self.folder / "canary.sang").exists()


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Canary(tmp_path)
    sys.modules.pop("canary", None)
    gym.registry.pop("Canary-v0", None)


@pytest.fixture(scope="module")
def honest_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_config("dreamer", tmp_path_factory.mktemp("runs"), backend="sync", total_timesteps=64)
    return train_state(config)[0]


def received(run: Path, folder: Path, **changes: Any) -> Path:
    """The run as a stranger would send it: other names in its config, digests made anew, a signature from elsewhere."""
    state = load_checkpoint(run)
    state["config"] = {**state["config"], **changes}
    copy = folder / "received"
    save_tree(copy / "checkpoints" / "step-64", state)
    (copy / "config.yaml").write_text((run / "config.yaml").read_text())
    return copy


def with_tasks(names: list[str]) -> dict[str, Any]:
    return {"tasks": names, "env_id": "+".join(names)}


NAMES: dict[str, dict[str, Any]] = {
    "a factory": {"env_id": "canary:make"},
    "an id in a module": {"env_id": "canary:Canary-v0"},
    "a factory in a file": {"env_id": "canary.py:make"},
    "a task": with_tasks(["CartPole-v1", "canary:make"]),
    "a wrapper": {"wrappers": ["canary:wrap"]},
    "a wrapper with an argument": {"wrappers": [{"canary:wrap": {}}]},
    "a callback": {"callbacks": ["canary:make"]},
    "a logger": {"loggers": ["jsonl", "canary:make"]},
    "an algorithm": {"algo": "canary:make"},
    "a network": {"algo_kwargs": {"torso": "canary:make"}},
    "a bridge to another library": {"env_id": "GymV26Environment-v0", "env_kwargs": {"env_id": "canary:x"}},
}
VERBS: dict[str, tuple[str, ...]] = {
    "evaluate": ("--episodes", "1"),
    "resume": ("--display", "none"),
    "record": ("--output", "x.gif"),
    "record-demos": ("--output", "x.safetensors"),
    "dream": ("--output", "x.png"),
    "predict": ("--obs", OBS),
}
IN_PYTHON: dict[str, Callable[[Path], Any]] = {
    "load": Dreamer.load,
    "load_session": load_session,
    "load_policy": load_policy,
    "service_for": lambda run: service_for(run, limits=Limits()),
    "evaluate_checkpoint": evaluate_checkpoint,
    "resume_run": resume_run,
}
IMPORTS_NO_ENVIRONMENT = ("predict", "load_policy", "service_for")


def wants_environment(changes: dict[str, Any]) -> bool:
    return "env_id" in changes


@pytest.mark.parametrize("named", NAMES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_imports_what_a_received_run_names(
    verb: str, named: str, honest_run: Path, canary: Canary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = received(honest_run, tmp_path, **NAMES[named])
    code = main([verb, str(run), *VERBS[verb]])
    told = capsys.readouterr().err
    assert not canary.sang
    if verb in IMPORTS_NO_ENVIRONMENT and wants_environment(NAMES[named]):
        assert code == 0
    else:
        assert code == 4
        assert "wants to import" in told
        assert "--trust" in told
        assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize("named", ["a factory", "an id in a module", "a wrapper", "a network"])
@pytest.mark.parametrize("opening", IN_PYTHON)
def test_nothing_in_python_imports_it_either(
    opening: str, named: str, honest_run: Path, canary: Canary, tmp_path: Path
) -> None:
    run = received(honest_run, tmp_path, **NAMES[named])
    if opening in IMPORTS_NO_ENVIRONMENT and wants_environment(NAMES[named]):
        IN_PYTHON[opening](run)
    else:
        with pytest.raises(UntrustedError, match="canary"):
            IN_PYTHON[opening](run)
    assert not canary.sang


@pytest.mark.parametrize("flags", [("--trust",), ("--env", "canary:make")], ids=str)
def test_the_user_may_trust_a_run_or_name_its_environment(
    flags: tuple[str, ...], honest_run: Path, canary: Canary, tmp_path: Path
) -> None:
    run = received(honest_run, tmp_path, env_id="canary:make")
    assert main(["evaluate", str(run), "--episodes", "1", *flags]) == 0
    assert canary.sang


def test_naming_another_environment_leaves_the_stored_one_alone(
    honest_run: Path, canary: Canary, tmp_path: Path
) -> None:
    run = received(honest_run, tmp_path, env_id="canary:make")
    assert main(["evaluate", str(run), "--episodes", "1", "--env", "CartPole-v1"]) == 0
    assert not canary.sang


def test_naming_the_environment_does_not_allow_another_name(honest_run: Path, canary: Canary, tmp_path: Path) -> None:
    run = received(honest_run, tmp_path, env_id="canary:make", wrappers=["canary:wrap"])
    with pytest.raises(UntrustedError, match="wrap"):
        load_session(run, env="canary:make")


def test_what_the_user_made_here_is_opened_without_a_word(canary: Canary, tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, env_id="canary:make", backend="sync", total_timesteps=64)
    run, _ = train_state(config)
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    assert PPO.load(run).num_timesteps >= 64


def test_an_agent_that_was_saved_is_opened_by_its_maker_only(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PPO("canary:make").save(tmp_path / "model")
    PPO.load(tmp_path / "model").close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(UntrustedError):
        PPO.load(tmp_path / "model")
    PPO.load(tmp_path / "model", trust=True).close()


def test_a_callable_given_for_a_strangers_environment_takes_its_name_too(
    honest_run: Path, canary: Canary, tmp_path: Path
) -> None:
    """Else the next checkpoint would carry the stranger's name with the user's signature."""
    run = received(honest_run, tmp_path, env_id="os:system")
    opened = open_checkpoint(run, env=lambda: gym.make("CartPole-v1"))
    assert opened.config.env_id == "python:<lambda>"


def test_a_signature_is_of_one_config_only() -> None:
    config = {"env_id": "my.module:make", "env_kwargs": {}}
    assert is_own(config, sign(config))
    assert not is_own({**config, "env_kwargs": {"command": "rm"}}, sign(config))
    assert not is_own(config, sign({}))
    assert not is_own(config, None)
    assert not is_own(config, "")
    assert not is_own(config, "é")


def test_the_key_is_private_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = sign({})
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert [path.name for path in key_path().parent.iterdir()] == ["key"]
    assert sign({}) == first


@pytest.mark.parametrize("spoil", ["readable by others", "a link", "too short", "a directory"])
def test_a_key_that_may_be_known_to_others_proves_nothing(
    spoil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    signature = sign({})
    key = key_path()
    if spoil == "readable by others":
        key.chmod(0o644)
    elif spoil == "a link":
        key.rename(tmp_path / "elsewhere")
        key.symlink_to(tmp_path / "elsewhere")
    else:
        key.unlink()
        key.mkdir() if spoil == "a directory" else key.write_bytes(b"short")
    assert not is_own({}, signature)
    assert sign({}) == ""


def test_training_goes_on_where_no_key_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    agent = PPO("CartPole-v1")
    agent.save(tmp_path / "model")
    PPO.load(tmp_path / "model").close()


@pytest.mark.parametrize(
    "config",
    [
        {"env_id": "CartPole-v1"},
        {"env_id": "ALE/Pong-v5"},
        {"env_id": "python:make"},
        {"tasks": ["CartPole-v1", "Acrobot-v1"], "env_id": "CartPole-v1+Acrobot-v1"},
        {"env_id": "CartPole-v1", "wrappers": [{"frame_stack": 4}], "algo_kwargs": {"demonstrations": "minari:x/y-v0"}},
        {"env_id": None, "tasks": 3, "wrappers": {"a": 1}, "algo_kwargs": None},
    ],
    ids=str,
)
def test_registered_ids_and_the_packages_own_names_need_no_trust(config: dict[str, Any]) -> None:
    assert code_named_in(config) == []


def test_a_stored_cluster_address_is_not_used(honest_run: Path, tmp_path: Path) -> None:
    run = received(honest_run, tmp_path, ray_address="ray://attacker:10001")
    assert open_checkpoint(run).config.ray_address is None
    assert open_checkpoint(run, changes={"ray_address": "auto"}).config.ray_address == "auto"


def test_the_tasks_of_a_run_are_given_all_or_none(honest_run: Path, tmp_path: Path) -> None:
    run = received(honest_run, tmp_path, **with_tasks(["CartPole-v1", "canary:make"]))
    opened = open_checkpoint(run, env="CartPole-v1,canary:make")
    assert opened.config.tasks == ["CartPole-v1", "canary:make"]
    with pytest.raises(ConfigError, match="give all of them"):
        open_checkpoint(run, env="Acrobot-v1")


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "dreamer", "muzero"])
def test_predicting_makes_no_environment(algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(algo, tmp_path, total_timesteps=64)
    run, _ = train_state(config)
    session = load_session(run)
    obs = np.full(session.spaces.observation.shape, 0.01, dtype=np.float32)
    expected, _ = predict(session, obs)
    monkeypatch.setattr(gym, "make", lambda *_, **__: pytest.fail("made an environment"))
    monkeypatch.setattr(gym, "make_vec", lambda *_, **__: pytest.fail("made environments"))
    actions, _ = predict(load_policy(run), obs)
    assert np.array_equal(actions, expected)


def test_a_policy_of_mappings_predicts_from_its_stored_spaces(tmp_path: Path) -> None:
    PPO(ScriptedDictEnv).save(tmp_path / "model")
    spaces = load_policy(tmp_path / "model").spaces
    assert spaces.observation == ScriptedDictEnv().observation_space


def test_the_key_does_not_travel_with_a_run(honest_run: Path) -> None:
    key = key_path().read_bytes()
    files = [path for path in honest_run.rglob("*") if path.is_file()]
    assert files
    assert not any(key in path.read_bytes() or key.hex().encode() in path.read_bytes() for path in files)


def test_every_checkpoint_carries_the_signature_of_its_config(honest_run: Path) -> None:
    latest = CheckpointStore(honest_run).latest()
    assert latest is not None
    state = json.loads((latest / "state.json").read_text())
    assert is_own(state["config"], state["signature"])
