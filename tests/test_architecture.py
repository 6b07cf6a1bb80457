"""The import direction, and the rule that keeps trainers short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rl_training"
# Imports point to the left. The modules at the root and the tools of compiled code are places of their own.
LINE = (
    "errors",
    "blame",
    "naming",
    "replaceable",
    "ops",
    "data",
    "envs",
    "experiment",
    "kernels.tools",
    "models",
    "search",
    "algorithms",
    "kernels",
    "runtime",
    "distributed",
    "tools",
    "api",
    "cli",
)
TRAINERS = sorted(SOURCE.glob("runtime/*_trainer.py"))


def place_of(module: str) -> str:
    """Where in the line a module `rl_training.…` stands."""
    parts = module.split(".")[1:]
    return "kernels.tools" if parts[:2] == ["kernels", "tools"] else parts[0]


def imported_places(path: Path) -> set[str]:
    """Where everything comes from that a file imports of the package, in its functions too."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rl_training."):
            modules.add(node.module)
        elif isinstance(node, ast.ImportFrom) and node.module == "rl_training":
            modules |= {f"rl_training.{alias.name}" for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("rl_training.")}
    return {place_of(module) for module in modules}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in LINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    own = place_of(".".join(["rl_training", *path.relative_to(SOURCE).with_suffix("").parts]))
    assert imported_places(path) <= set(LINE[: LINE.index(own) + 1])


def test_the_line_knows_every_package() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert packages | modules | {"kernels.tools"} == set(LINE)


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
    pattern = r"import ray\b|import_extra\(\"ray"
    importing = {p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py") if re.search(pattern, p.read_text())}
    assert importing == {"distributed/connection.py"}


def test_nothing_asks_which_algorithm_runs() -> None:
    assert [p for p in SOURCE.rglob("*.py") if re.search(r"config\.algo ==|algo == \"", p.read_text())] == []


def test_nothing_unpickles_or_loads_unsafely() -> None:
    pattern = r"import pickle|torch\.load\(|yaml\.load\(|(?<!\.)\beval\(|cloudpickle"
    assert [p.name for p in SOURCE.rglob("*.py") if re.search(pattern, p.read_text())] == []


def test_docstrings_are_sentences() -> None:
    """They have a subject, or say what is done; "Of …" and "What …" have to be read twice."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    riddles = {
        f"{path.relative_to(SOURCE)}: {text.splitlines()[0]}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and text.startswith(("Of ", "What "))
    }
    assert riddles == set()


def test_no_file_is_long() -> None:
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 320}
    assert long == {}
