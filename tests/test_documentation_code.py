"""Every code block of the documentation runs: those of a page in one folder and one process, with small budgets."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rl_training.api import algorithms
from rl_training.api.agent import Agent
from rl_training.cli import main
from rl_training.experiment import registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STEPS = {"train": 256, "resume": 512}  # at most so many, whatever the page says
FENCE = re.compile(r"^(?:<!-- (not run|run with): ([^\n]*?) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_HERE = ("bash", "python", "yaml")
LANGUAGES = {*RUN_HERE, "toml", "text", "mermaid"}


class Block(NamedTuple):
    """A block of code; `not run` has a reason, and `run with` the flags that make a training small."""

    mark: str
    note: str
    language: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language in RUN_HERE and self.mark != "not run"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(*(part or "" for part in found.groups()), text[: found.start(4)].count("\n"))
        for found in FENCE.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_its_language_and_hides_no_command(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page.name}:{block.line}: write one of {sorted(LANGUAGES)} after ```"
        assert block.language != "text" or not block.text.startswith(("rl-training ", "import ", "from "))
    assert len(blocks(page)) * 2 == len(re.findall(r"^```", page.read_text(), re.MULTILINE)), page.name


@pytest.fixture
def _reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody who follows a page in an empty folder, and whose registrations and modules nobody else meets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known, managed, modules = dict(registry.REGISTRY), dict(algorithms.MANAGED), set(sys.modules)
    train = Agent.train

    def short(agent: Agent, total_timesteps: int | None = None, **options: Any) -> Any:
        return train(agent, min(total_timesteps or agent._budget, STEPS["train"]), **options | {"display": "none"})

    monkeypatch.setattr(Agent, "train", short)
    yield
    for table, before in ((registry.REGISTRY, known), (algorithms.MANAGED, managed)):
        table.clear()
        table.update(before)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.runs for b in blocks(page))], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    for block in (block for block in blocks(page) if block.runs):
        _write_named_file(block)
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        elif block.language == "bash":
            for arguments in commands(block):
                assert main(arguments) == 0, f"{page.name}:{block.line}: {arguments}\n{capsys.readouterr().err}"
        else:
            assert yaml.safe_load(block.text)


def _write_named_file(block: Block) -> None:
    """A block whose first line is a comment with a file's name is that file."""
    named = re.match(r"# ([\w/]+\.(?:py|yaml))\n", block.text)
    if named:
        Path(named[1]).write_text(block.text)


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of `rl-training`, with small budgets; RUN is the latest run."""
    for line in block.text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True) or ["rl-training"]
        assert program == "rl-training", f"only rl-training is run here; mark the block `not run`: {line}"
        if arguments:
            yield _small(["latest" if word == "RUN" else word for word in arguments], shlex.split(block.note))


def _small(arguments: list[str], more: list[str]) -> list[str]:
    verb = arguments[0]
    if verb not in STEPS or "--dry-run" in arguments:
        return arguments
    for flag in ("--total-timesteps", "--jobs"):
        if flag in arguments:
            at = arguments.index(flag)
            arguments = arguments[:at] + arguments[at + 2 :]
    arguments = [*arguments, "--total-timesteps", str(STEPS[verb]), "--display", "none"]
    return [*arguments, "--eval-episodes", "2", "--log-interval", "64", *more] if verb == "train" else arguments
