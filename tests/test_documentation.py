"""What the documentation derives is up to date, and every algorithm has its page."""

from __future__ import annotations

import pkgutil
import re
import runpy
from pathlib import Path

import pytest

from rl_training.experiment.registry import REGISTRY

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def build() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "build.py"), run_name="build")


def test_the_sourcebook_is_what_the_registry_says(build: dict) -> None:
    assert (ROOT / "docs" / "sourcebook.md").read_text() == build["sourcebook"](), "run: python docs/build.py"


def test_the_readme_lists_every_algorithm(build: dict) -> None:
    assert build["readme_table"]() in (ROOT / "README.md").read_text(), "run: python docs/build.py"


def test_editors_know_every_parameter(build: dict) -> None:
    for path, text in build["STUBS"].items():
        assert path.read_text() == text(), "run: python docs/build.py"


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_every_algorithm_has_a_page_and_a_reference_script(algo: str) -> None:
    assert REGISTRY[algo].paper.removeprefix("arXiv:") in (ROOT / "docs" / "algorithms" / f"{algo}.md").read_text()
    assert list((ROOT / "examples").glob(f"{algo}_[cp]*_reference.py"))


def test_links_between_pages_lead_somewhere() -> None:

    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "algorithms").glob("*.md")), ids=lambda page: page.stem)
def test_the_code_that_a_page_points_to_exists(page: Path) -> None:
    packages = {path.name for path in (ROOT / "src" / "rl_training").iterdir() if path.is_dir()}
    names = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", page.read_text()))
    for name in (name for name in names if name.partition(".")[0] in packages):
        assert pkgutil.resolve_name(f"rl_training.{name}"), name
