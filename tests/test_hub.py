"""Cards, and runs that are pushed to a hub and pulled from it: what is in them, and what is never fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from conformance import rows_of, small_config
from hub_stand_in import Hub, running_hub
from rl_training.cli import main
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.checkpointing import load_checkpoint, save_tree
from rl_training.experiment.trust import UntrustedError
from rl_training.runtime.manager import train_run
from rl_training.runtime.opening import load_policy
from rl_training.tools.card import make_card
from rl_training.tools.hub import pull_run, push_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of three seeds."""
    folder = tmp_path_factory.mktemp("runs")
    config = small_config("ppo", folder, algo_kwargs={"clip_coef_schedule": "linear"}, eval_episodes=3)
    dirs = [train_run(config.changed(seed=seed)).run_dir for seed in (0, 1, 2)]
    assert dirs[0] is not None
    return dirs[0]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


def test_a_card_tells_task_scores_settings_curve_and_how_to_load(run: Path) -> None:
    card = make_card(run, repo="me/ppo")
    _, front, text = card.text.split("---\n", 2)
    meta = yaml.safe_load(front)
    evaluation = [row for row in rows_of(run) if "eval_return_mean" in row][-1]
    mean, std = evaluation["eval_return_mean"], evaluation["eval_return_std"]
    (metric,) = meta["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == f"{mean:.2f} +/- {std:.2f}"
    assert "`ppo` on `CartPole-v1`" in text
    assert f"return {mean:.1f} ± {std:.1f}, worst" in text
    assert "3 seeds of this configuration" in text
    assert "clip_coef_schedule: linear" in text
    assert "rl-training pull me/ppo --output policy" in text
    assert "![learning curve](curve.svg)" in text
    assert card.curve.startswith("<svg")
    assert str(run.parents[2]) not in card.text  # nothing of this machine


def test_a_strangers_names_are_only_text_in_a_card(run: Path, tmp_path: Path) -> None:
    evil = "x`\n# Owned <script>alert(1)</script> [a](http://b)"
    copy = tmp_path / "run"
    save_tree(copy / "checkpoints" / "step-8", load_checkpoint(run))
    config = yaml.safe_load((run / "config.yaml").read_text())
    (copy / "config.yaml").write_text(yaml.safe_dump({**config, "env_id": evil, "wrappers": ["```\n# out"]}))
    text = make_card(copy).text.split("---\n", 2)[2]
    prose = text[: text.index("## Settings")]
    assert "<script>" not in prose
    assert "\n# Owned" not in prose
    assert "````yaml" in text  # a fence that the settings cannot close


def test_the_verb_writes_the_card_beside_the_run(run: Path, tmp_path: Path) -> None:
    assert main(["card", str(run), "--output", str(tmp_path / "card")]) == 0
    assert {path.name for path in (tmp_path / "card").iterdir()} == {"README.md", "curve.svg"}


def test_what_was_pushed_comes_back_as_the_same_policy(run: Path, hub: Hub, tmp_path: Path) -> None:
    pushed = push_run(run, "me/ppo", endpoint=hub.url)
    assert set(hub.repos["me/ppo"]) == set(pushed.files)
    assert {"README.md", "config.yaml", "curve.svg", "metrics.jsonl"} < set(pushed.files)
    pulled = pull_run("me/ppo", tmp_path / "pulled", endpoint=hub.url)
    weights = [load_policy(path).policy.state_dict() for path in (run, pulled.path)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert main(["evaluate", str(pulled.path), "--episodes", "1"]) == 0


def test_the_verbs_push_and_pull(run: Path, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(run), "me/two", "--endpoint", hub.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == f"{hub.url}/me/two"
    assert main(["pull", "me/two", "--output", str(tmp_path / "two"), "--endpoint", hub.url]) == 0
    assert main(["pull", "me/two", "--output", str(tmp_path / "two"), "--endpoint", hub.url]) == 2
    assert "choose another --output" in capsys.readouterr().err


def test_no_code_of_a_repository_is_fetched(run: Path, hub: Hub, tmp_path: Path) -> None:
    push_run(run, "me/ppo", endpoint=hub.url)
    hub.repos["me/ppo"] |= {"evil.py": b"import os", "model.pkl": b"\x80", "checkpoints/step-1/run.py": b"x"}
    pulled = pull_run("me/ppo", tmp_path / "pulled", endpoint=hub.url)
    assert not [name for name in (*pulled.files, *hub.fetched) if name.endswith((".py", ".pkl"))]


def test_a_pulled_run_that_names_code_is_not_opened(run: Path, hub: Hub, tmp_path: Path) -> None:
    state = load_checkpoint(run)
    state["config"] = {**state["config"], "algo_kwargs": {"torso": "canary:make"}}
    copy = tmp_path / "theirs"
    save_tree(copy / "checkpoints" / "step-64", state)
    for name in ("config.yaml", "metrics.jsonl"):
        (copy / name).write_text((run / name).read_text())
    push_run(copy, "them/ppo", endpoint=hub.url)
    pulled = pull_run("them/ppo", tmp_path / "pulled", endpoint=hub.url)
    with pytest.raises(UntrustedError, match="wants to import 'canary:make'"):
        load_policy(pulled.path)


def test_damage_on_the_way_is_found(run: Path, hub: Hub, tmp_path: Path) -> None:
    push_run(run, "me/ppo", endpoint=hub.url)
    name = next(name for name in hub.repos["me/ppo"] if name.endswith("tensors.safetensors"))
    *rest, last = hub.repos["me/ppo"][name]
    hub.repos["me/ppo"][name] = bytes([*rest, last ^ 1])
    with pytest.raises(CheckpointError):
        pull_run("me/ppo", tmp_path / "pulled", endpoint=hub.url)


def test_what_the_hub_refuses_is_told_in_a_line(run: Path, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(RLTrainingError, match=r"^me/nothing: .*[Nn]ot [Ff]ound"):
        pull_run("me/nothing", tmp_path / "a", endpoint=hub.url)
    hub.repos["me/empty"] = {"README.md": b"hello"}
    with pytest.raises(CheckpointError, match=r"me/empty holds no run of this package"):
        pull_run("me/empty", tmp_path / "b", endpoint=hub.url)
    with pytest.raises(ConfigError, match="not a run directory"):
        push_run(run / "checkpoints", "me/x", endpoint=hub.url)
