"""What may be wrong with a run that was received or damaged: links, bombs, sizes, rows, states of another form."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from conformance import small_config, train_state
from rl_training import list_runs, resume_run
from rl_training.cli import main
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.state import read_state, write_state
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.checkpointing import load_checkpoint, load_tree, save_tree
from rl_training.experiment.fitting import MisfitError, refuse_misfit
from rl_training.experiment.manifest import sealed
from rl_training.experiment.plain import parse_yaml, read_yaml_file
from rl_training.runtime.opening import load_policy, load_session
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import train_session

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)
DEEP = "a: " + "[" * 2000 + "]" * 2000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return train_state(small_config("ppo", tmp_path / "runs", total_timesteps=64))[0]


@pytest.mark.parametrize(
    "name", [".lock", ".config.yaml.tmp", ".tmp-config.yaml", ".tmp-metrics.jsonl", ".tmp-metrics.csv"]
)
def test_a_link_in_a_run_does_not_lead_to_the_users_files(name: str, run: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(treasure)
    with suppress(RLTrainingError):
        resume_run(run, total_timesteps=128)
    assert treasure.read_text() == "mine"


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "config.yaml"])
def test_a_file_of_the_run_that_is_a_link_is_replaced_or_refused(name: str, run: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text((run / name).read_text())
    before = treasure.read_text()
    (run / name).unlink()
    (run / name).symlink_to(treasure)
    with suppress(RLTrainingError):
        resume_run(run, total_timesteps=128)
    assert treasure.read_text() == before


def test_a_link_to_nowhere_makes_no_file(run: Path, tmp_path: Path) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "new")
    with pytest.raises(RLTrainingError, match=r"metrics\.jsonl|symbolic link"):
        resume_run(run, total_timesteps=128)
    assert not (tmp_path / "new").exists()


def test_checkpoints_of_another_run_are_not_pruned_through_a_link(run: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    (run / "checkpoints").rename(others)
    before = sorted(path.name for path in others.iterdir())
    (run / "checkpoints").symlink_to(others)
    with pytest.raises(CheckpointError, match="symbolic link"):
        resume_run(run, total_timesteps=128)
    assert sorted(path.name for path in others.iterdir()) == before


@pytest.mark.parametrize("text", [BOMB, DEEP], ids=["bomb", "deep"])
def test_hostile_yaml_is_refused_at_once(text: str, run: Path, tmp_path: Path) -> None:
    (run / "config.yaml").write_text(text)
    (tmp_path / "train.yaml").write_text(text)
    began = time.perf_counter()
    assert main(["show", str(run)]) == 2
    assert main(["plot", str(run), "--output", str(tmp_path / "x.png")]) == 2
    assert main(["train", "--config", str(tmp_path / "train.yaml"), "--dry-run"]) == 2
    assert main(["train", "ppo", "--env", "CartPole-v1", "--set", f"env_kwargs={text[3:]}", "--dry-run"]) == 2
    assert main(["list", "runs", "--output-dir", str(tmp_path)]) == 0
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    "text", ["a: 2001-13-45", "a: " + "9" * 5000, "a: !!python/name:os.system", "? [1]\n: 2", "\x00"]
)
def test_a_value_that_yaml_cannot_make_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: not valid YAML"):
        parse_yaml(text, "here")


def test_a_config_file_is_small_and_a_file(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.touch()
    os.truncate(big, 10**12)
    with pytest.raises(ConfigError, match="larger than"):
        read_yaml_file(big)
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="not a file"):
        read_yaml_file(tmp_path / "config.yaml")
    assert [info.algo for info in list_runs(tmp_path)] == [None]


def test_a_tensor_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    save_tree(tmp_path / "c", {"x": torch.zeros(3)})
    os.truncate(tmp_path / "c" / "tensors.safetensors", 10**12)  # sparse: hashing it would take half an hour
    began = time.perf_counter()
    with pytest.raises(CheckpointError, match="damaged; its 1,000,000,000,000 bytes"):
        load_tree(tmp_path / "c")
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("stated", [None, 7, [], {}])
def test_a_manifest_without_sizes_is_refused(stated: Any, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", {"x": torch.zeros(3)})
    path = tmp_path / "c" / "manifest.json"
    header = json.loads(path.read_text())
    header.pop("sha256")
    header["files"]["state.json"] = stated
    path.write_bytes(sealed(header))
    with pytest.raises(CheckpointError, match="damaged"):
        load_tree(tmp_path / "c")


@pytest.mark.parametrize(
    "row", ['{"global_step": null}', '{"global_step": "x"}', '{"global_step": [1]}', "[" * 5000, "{}", "\x00", '"x"']
)
def test_a_damaged_row_does_not_keep_a_good_checkpoint_from_being_resumed(row: str, run: Path) -> None:
    for name in ("metrics.jsonl", "metrics.csv"):
        with (run / name).open("a") as file:
            file.write(row + "\n")
    (info,) = list_runs(run.parent)
    assert info.step is not None
    assert resume_run(run, total_timesteps=128).global_step >= 128
    assert all(isinstance(json.loads(line)["global_step"], int) for line in (run / "metrics.jsonl").open())


def leaves_of(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    return [path] if items is None else [leaf for key, child in items for leaf in leaves_of(child, (*path, key))]


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with another type, shape or dtype, as a careless or hostile editor would leave it."""
    others: list[Any] = [None, "x", -1, 2.5, [], {}, {"a": 1}, [None], True, 10**30, np.float32(3.0)]
    if isinstance(value, torch.Tensor):
        others += [
            torch.zeros(7),
            value.double(),
            value.reshape(-1)[:0],
            torch.cat([value.reshape(-1)] * 2),
            value.bool(),
        ]
    if isinstance(value, np.ndarray):
        others += [np.zeros(7), value.astype(np.complex64), value[:0], np.concatenate([value.reshape(-1)] * 2)]
    return rng.choice(others)


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def train_on(session: Session) -> None:
    """Two more iterations, in which a state that was taken in wrongly would show itself."""
    with suppress(RLTrainingError), closing(session):
        steps = session.progress.global_step + 64
        session.configure(session.config.model_copy(update={"eval_episodes": 0, "total_timesteps": steps}))
        train_session(session)


@pytest.mark.parametrize("algo", ["ppo", "muzero", "ppg"])
def test_a_state_of_another_form_is_refused_by_its_key_or_harmless(algo: str, tmp_path: Path) -> None:
    """Digests are made anew after each mutation, so that only the form can give it away."""
    run, _ = train_state(small_config(algo, tmp_path / "runs", total_timesteps=96))
    state = load_checkpoint(run)
    rng = random.Random(0)
    paths = [path for path in leaves_of(state) if path[0] not in ("config", "signature")]
    refused = 0
    for _ in range(50):
        path = rng.choice(paths)
        value = state
        for key in path:
            value = value[key]
        hostile = tmp_path / "hostile"
        save_tree(hostile, replaced(state, path, mutated(value, rng)))
        for load in (load_session, load_policy):
            try:
                loaded = load(hostile)
            except RLTrainingError:
                refused += 1
            else:
                if load is load_session:
                    train_on(loaded)
    assert refused > 50


def test_the_state_of_a_generator_fits_whatever_it_has_drawn() -> None:
    """The numbers in it are of 128 bits, of which the first may be 0, in the new one and not in the stored one."""
    for seed in range(100):
        fresh, used = np.random.default_rng(seed), np.random.default_rng(seed)
        used.random(seed)
        refuse_misfit(used.bit_generator.state, fresh.bit_generator.state, "rng")
    too_large = {"bit_generator": "PCG64", "state": {"state": 2**128, "inc": 1}, "has_uint32": 0, "uinteger": 0}
    with pytest.raises(MisfitError, match="'rng/state/state' does not fit"):
        refuse_misfit(too_large, fresh.bit_generator.state, "rng")


def test_the_key_that_does_not_fit_is_named(run: Path, tmp_path: Path) -> None:
    state = load_checkpoint(run)
    weights = state["learner"]["algorithm"]["policy"]
    name = next(iter(weights))
    weights[name] = torch.zeros(3)
    save_tree(tmp_path / "hostile", state)
    with pytest.raises(CheckpointError, match=f"'learner/algorithm/policy/{name}' does not fit: expected .*shape"):
        load_session(tmp_path / "hostile")


def test_a_received_state_sets_no_attribute_of_an_environment_but_its_state() -> None:
    env = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    state = read_state(env)
    state["classic"]["step"] = "not a method"
    write_state(env, state)
    assert callable(env.step)


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_a_count_of_steps_that_is_none_is_refused(backend: str) -> None:
    envs = make_envs(EnvSpec("CartPole-v1", backend=backend), 2)
    envs.reset(0)
    with pytest.raises(TypeError):
        envs.load_state_dict({**envs.state_dict(), "steps": {}})
