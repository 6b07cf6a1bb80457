"""The import direction, and the rule that keeps trainers short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rl_training"
LAYERS = ("ops", "models", "search", "algorithms", "runtime", "api", "cli")  # imports point to the left
TRAINERS = sorted(SOURCE.glob("runtime/*_trainer.py"))


def imported_packages(path: Path) -> set[str]:
    """Second names of all `rl_training.X` imports that run when the module is imported."""
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rl_training."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rl_training.")}
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    wrong = {
        path.relative_to(SOURCE).as_posix(): sorted(imported_packages(path) & above)
        for path in SOURCE.glob(f"{layer}/**/*.py")
        if imported_packages(path) & above
    }
    assert wrong == {}


@pytest.mark.parametrize("leaf", ["envs", "data", "errors.py"])
def test_leaves_read_no_layer_above_them(leaf: str) -> None:
    paths = [SOURCE / leaf] if leaf.endswith(".py") else list(SOURCE.glob(f"{leaf}/*.py"))
    assert paths
    assert [p.name for p in paths if imported_packages(p) & {"algorithms", "runtime", "api", "cli", "experiment"}] == []


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: path.stem)
def test_a_trainer_has_only_what_is_peculiar(path: Path) -> None:
    """No loop of its own, no environment stepped, no schedule resolved, no file written, no logger opened."""
    text = path.read_text()
    for forbidden in (
        r"while .*global_step",
        r"\.step\(",
        r"\.reset\(",
        r"\bopen\(",
        r"resolve_",
        r"Logger",
        r"algo ==",
    ):
        assert not re.search(forbidden, text), f"{path.name} has {forbidden}"
    assert len(text.splitlines()) <= 150


def test_only_the_ray_modules_import_ray() -> None:
    importing = {p.name for p in SOURCE.rglob("*.py") if re.search(r"import ray\b|import_extra\(\"ray", p.read_text())}
    assert importing == {"ray_session.py"}
    taking = {p.name for p in SOURCE.rglob("*.py") if "from rl_training.runtime.ray_session import" in p.read_text()}
    assert {name for name in taking if not name.startswith("ray_")} == set()


def test_nothing_asks_which_algorithm_runs() -> None:
    assert [p for p in SOURCE.rglob("*.py") if re.search(r"config\.algo ==|algo == \"", p.read_text())] == []


def test_nothing_unpickles_or_loads_unsafely() -> None:
    pattern = r"import pickle|torch\.load\(|yaml\.load\(|(?<!\.)\beval\(|cloudpickle"
    assert [p.name for p in SOURCE.rglob("*.py") if re.search(pattern, p.read_text())] == []


def test_no_file_is_long() -> None:
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 320}
    assert long == {}
