"""The report: one page that stands alone, says what the runs were, and shows nothing that a run smuggled in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli import main
from rl_training.cli import report as report_verb
from rl_training.errors import ConfigError
from rl_training.tools.report import write_report
from test_compare import run_of, write_run

HOSTILE = "<script>alert(1)</script>$x$ & co"
VOID = {"meta", "path", "rect", "use", "image", "line", "stop"}


class Tags(HTMLParser):
    """Collects tags and checks that each that opens is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.references += [value for key, value in attrs if value and key in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.opened.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.opened.pop() == tag


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of PPO, whose clip range moves, two of A2C, and a hyper-parameter that is no number."""
    folder = tmp_path_factory.mktemp("runs")
    for algo, seeds in (("ppo", 3), ("a2c", 2)):
        for seed in range(seeds):
            run = run_of([0.0, 5.0, 10.0 + seed], seed=seed, algo=algo, algo_kwargs={"clip_coef": 0.2, "name": HOSTILE})
            for row in run.rows:
                row.update({"return_mean": 1.0, "policy_loss": 0.5, "clip_coef": 0.2 / row["global_step"]})  # type: ignore[attr-defined]
            path = write_run(folder / algo / f"seed{seed}", run)
            start = {"time": "then", "command": "rl-training train ppo", "versions": {"torch": "2.13.0"}, "cpus": 2}
            (path / "starts.jsonl").write_text(json.dumps(start) + "\n")
    return folder


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("reports") / "new" / "report.html"
    write_report([runs], output, by="name", target=5.0)
    return output.read_text()


def test_a_page_stands_alone_and_is_well_formed(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.opened == []
    assert tags.seen.count("svg") == 3  # curves, losses, profile
    assert all(reference.startswith("#") for reference in tags.references)
    assert not re.search(r"@import|url\((?!#)|fetch\(", page)


def test_a_page_says_what_the_runs_were(page: str, runs: Path) -> None:
    for said in (
        "a2c, ppo on CartPole-v1",
        "reached 5",
        "clip_coef: 0.2",
        "$ rl-training train ppo",
        "torch 2.13.0",
        "policy_loss",
        "performance profile",
        "schedules as they were used",
        str(runs / "ppo" / "seed2"),
    ):
        assert said in page, said


def test_a_run_cannot_smuggle_a_script_into_the_page(page: str) -> None:
    assert page.count("<script>") == 1
    assert "alert(1)" in page
    assert escape(HOSTILE, quote=False) in page or escape(HOSTILE) in page


def test_a_page_reloads_until_every_run_has_finished(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    going = write_run(tmp_path / "run", run_of([1.0], total_timesteps=200))
    output, reloads = tmp_path / "report.html", []

    def finish_meanwhile(_seconds: float) -> None:
        reloads.append('http-equiv="refresh" content="7"' in output.read_text())
        with (going / "metrics.jsonl").open("a") as file:
            file.write('{"global_step": 200, "eval_return_mean": 2.0}\n')

    monkeypatch.setattr(report_verb.time, "sleep", finish_meanwhile)
    arguments = [str(going), "--output", str(output), "--watch", "--interval", "7", "--json"]
    assert main(["report", *arguments]) == 0
    assert reloads == [True]
    assert "http-equiv" not in output.read_text()
    assert json.loads(capsys.readouterr().out)["finished"]
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        write_report([runs], tmp_path / "report.pdf")


def in_browser(page: str, script: str, folder: Path) -> Any:
    """Runs a script over the page, as `doc` in a window of 390 pixels, and returns the object that it makes."""
    harness = folder / "harness.html"
    harness.write_text(
        f'<!doctype html><iframe id="f" style="width:390px;height:844px;border:0" srcdoc="{escape(page)}"></iframe>'
        "<pre id=out></pre><script>f.onload = () => { const doc = f.contentDocument;"
        f"out.textContent = JSON.stringify((() => {{{script}}})()); }};</script>"
    )
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(shutil.which("chromium")), *flags, profile, harness.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(dom.split('<pre id="out">')[1].split("</pre>")[0])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_telephone_shows_the_page_and_its_tables_sort(page: str, tmp_path: Path) -> None:
    script = """
        const table = [...doc.querySelectorAll("table")].find(t => t.tHead.textContent.includes("CPU time"));
        const cells = () => [...table.tBodies[0].rows].map(row => row.children[4].textContent);
        const before = cells(); table.tHead.rows[0].children[4].click(); const up = cells();
        table.tHead.rows[0].children[4].click();
        return {width: doc.documentElement.scrollWidth, before, up, down: cells()};
    """
    seen = in_browser(page, script, tmp_path)
    assert seen["width"] <= 390
    assert seen["up"] == sorted(seen["before"], key=float)
    assert seen["down"] == seen["up"][::-1]
