"""What the documentation derives is up to date, its references lead somewhere, and every algorithm has its page."""

from __future__ import annotations

import ast
import functools
import inspect
import pkgutil
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.registry import REGISTRY

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "rl_training"
SITE = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "plans" not in page.parts]
ALGORITHM_PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
STALE = "run: python docs/build.py"


@pytest.fixture(scope="module")
def build() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "build.py"), run_name="build")


def test_the_sourcebook_is_what_the_registry_says(build: dict) -> None:
    assert (ROOT / "docs" / "sourcebook.md").read_text() == build["sourcebook"](), STALE


def test_the_readme_lists_every_algorithm(build: dict) -> None:
    assert build["readme_table"]() in (ROOT / "README.md").read_text(), STALE


def test_editors_know_every_parameter(build: dict) -> None:
    for path, text in build["STUBS"].items():
        assert path.read_text() == text(), STALE


def test_the_reference_is_what_docstrings_and_descriptions_say(build: dict) -> None:
    for path, text in build["PAGES"].items():
        assert path.read_text() == text(), f"{path.name}: {STALE}"
    for page, name, text in build["sections"]():
        assert f"<!-- {name} -->\n{text}\n<!-- /{name} -->" in page.read_text(), f"{page.name}: {STALE}"


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_every_algorithm_has_a_page_and_a_reference_script(algo: str) -> None:
    page = (ROOT / "docs" / "algorithms" / f"{algo}.md").read_text()
    assert REGISTRY[algo].paper.removeprefix("arXiv:") in page
    assert "## When to choose it" in page
    assert list((ROOT / "examples").glob(f"{algo}_[cp]*_reference.py"))


def test_every_page_of_the_site_is_in_the_navigation() -> None:
    navigation = (ROOT / "zensical.toml").read_text()
    for page in SITE:
        assert f'"{page.relative_to(ROOT / "docs")}"' in navigation, page.name
    for target in re.findall(r'"([\w/]+\.md)"', navigation):
        assert (ROOT / "docs" / target).is_file(), target


def test_programs_and_plans_are_not_published() -> None:
    excluded = re.search(r'exclude_docs = """\n(.*?)"""', (ROOT / "zensical.toml").read_text(), re.DOTALL)
    assert excluded
    assert {"plans/", "*.py", "*.yaml"} <= set(excluded[1].split())


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as Markdown makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", without_code(page.read_text())):
        if ":" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}: {sorted(anchors(linked))}"
        assert page not in SITE or linked.is_relative_to(ROOT / "docs"), f"{target} is not on the site"


@functools.cache
def definitions() -> dict[str, str]:
    """The module of every class, function and constant that a file of the package defines at its top."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            names = [getattr(target, "name", getattr(target, "id", None)) for target in targets]
            found.update({name: module for name in names if name})
    return found


def resolved(reference: str) -> Any:
    """What a reference of a page means: `package.module.name`, `Class.member`, `function`, or a file."""
    if reference.endswith(".py"):
        return next(path for path in (PACKAGE / reference, ROOT / reference) if path.is_file())
    first = reference.partition(".")[0]
    if (PACKAGE / first).is_dir():
        return pkgutil.resolve_name(f"rl_training.{reference}")
    owner, _, member = f"{definitions()[first]}:{reference}".rpartition("." if "." in reference else ":")
    found = pkgutil.resolve_name(owner)
    return getattr(found, member, None) or set_by_instances(found, member)


def set_by_instances(owner: type, member: str) -> bool:
    """Whether an instance has it: a field of a dataclass, or what a method sets."""
    sources = [inspect.getsource(base) for base in owner.__mro__ if base.__module__.startswith("rl_training.")]
    return any(re.search(rf"^ +(self\.{member}\b.* = |{member}: )", source, re.MULTILINE) for source in sources)


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda page: page.stem)
def test_the_code_that_a_page_points_to_exists(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text):
        assert resolved(path), path
    rows = re.search(r"^\| detail \| where \|\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert rows, "a table of details"
    owner, parameters = "", REGISTRY[page.stem].learner_class().Params.model_fields
    for reference in re.findall(r"`([^`]+)`", "\n".join(row.rsplit(" | ", 1)[1] for row in rows[1].splitlines()[1:])):
        name = f"{owner}{reference}" if reference.startswith(".") else reference
        owner = name.rpartition(".")[0]
        assert name in parameters or resolved(name), f"{page.name}: `{reference}` is nowhere"


def test_the_errors_that_are_explained_are_those_that_users_meet() -> None:
    page = (ROOT / "docs" / "faq.md").read_text()
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    quoted = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert quoted
    assert [words for words in quoted if words not in source] == []
