"""The board: what it shows of runs that go on, what it refuses, and its button in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chromium import CHROMIUM, browsing
from rl_training.cli import main
from rl_training.experiment.runs import RunLock, writer_of
from rl_training.tools.board import Board, chosen_runs, serving_board
from rl_training.tools.curves import read_run

HOSTILE = "<script>alert(1)</script>"


def write_run(
    path: Path, *, algo: str = "ppo", env_id: str = "CartPole-v1", seed: int = 0, clip_coef: float = 0.2
) -> Path:
    path.mkdir(parents=True)
    kwargs = {"clip_coef": clip_coef, "clip_coef_schedule": "linear"}
    config = {"algo": algo, "env_id": env_id, "seed": seed, "total_timesteps": 100, "algo_kwargs": kwargs}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    add_row(path, 10, 1.0)
    add_row(path, 20, 2.0)
    return path


def add_row(path: Path, step: int, paid: float) -> None:
    with (path / "metrics.jsonl").open("a") as file:
        row = {"global_step": step, "return_mean": paid, "clip_coef": 0.2 * (1 - step / 100)}
        file.write(json.dumps(row) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs" / "a", seed=0)
    write_run(tmp_path / "runs" / "b", algo="a2c", seed=1, clip_coef=0.1)
    write_run(tmp_path / "runs" / "c", env_id=HOSTILE)
    return tmp_path / "runs"


@pytest.fixture
def served(root: Path) -> Iterator[tuple[Board, int]]:
    board = Board(root, interval_s=0.2)
    with serving_board(board, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield board, server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body or None, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    connection.close()
    return answer.status, text


def test_the_page_has_curves_with_schedules_and_all_runs(served: tuple[Board, int]) -> None:
    status, page = ask(served[1], "GET", "/")
    assert status == 200
    assert page.count("<svg") == 2  # one for each environment
    assert "clip_coef" in page
    assert HOSTILE not in page
    assert page.count("<script") == 2


def test_runs_are_chosen_by_any_key(root: Path, served: tuple[Board, int]) -> None:
    runs = [read_run(path) for path in sorted(root.iterdir())]
    assert [run.path.name for run in chosen_runs(runs, "algo=ppo seed=0")] == ["a", "c"]
    assert [run.path.name for run in chosen_runs(runs, "clip_coef=0.1")] == ["b"]
    _, page = ask(served[1], "GET", "/live?where=algo%3Da2c")
    assert str(root / "b") in page
    assert str(root / "a") not in page
    assert "write key=value" in ask(served[1], "GET", "/live?where=algo")[1]


def test_a_new_row_is_seen_and_nothing_is_drawn_twice(root: Path, served: tuple[Board, int]) -> None:
    board, port = served
    first = ask(port, "GET", "/live")[1]
    drawn = board._drawn
    assert ask(port, "GET", "/live")[1] == first
    assert board._drawn is drawn
    add_row(root / "a", 30, 77.0)
    assert ask(port, "GET", "/live")[1] != first


def test_videos_are_of_runs_only(root: Path, served: tuple[Board, int], tmp_path: Path) -> None:
    (root / "a" / "play.mp4").write_bytes(b"film")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (root / "b" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    assert ask(served[1], "GET", "/video/a/play.mp4") == (200, "film")
    for name in ("../secret.mp4", "%2e%2e/secret.mp4", "b/link.mp4", "a/config.yaml"):
        assert ask(served[1], "GET", f"/video/{name}")[0] == 400


def test_other_names_for_this_machine_are_refused(served: tuple[Board, int]) -> None:
    assert ask(served[1], "GET", "/", Host=f"evil.example:{served[1]}")[0] == 400
    body = json.dumps({"run": "x"})
    assert (
        ask(served[1], "POST", "/stop", body, Host=f"evil.example:{served[1]}", X_Board_Token=served[0].token)[0] == 400
    )


def test_the_button_needs_the_token_and_a_run_that_is_written(root: Path, served: tuple[Board, int]) -> None:
    board, port = served
    body = json.dumps({"run": str(root / "a")})
    assert ask(port, "POST", "/stop", body)[0] == 403
    assert ask(port, "POST", "/stop", body, X_Board_Token="guess")[0] == 403
    status, text = ask(port, "POST", "/stop", body, X_Board_Token=board.token)
    assert (status, "no process is writing" in text) == (400, True)
    assert ask(port, "POST", "/stop", "[]", X_Board_Token=board.token)[0] == 400


def test_only_the_process_that_has_the_lock_writes_a_run(root: Path) -> None:
    assert writer_of(root / "a") is None
    with RunLock(root / "a"):
        assert writer_of(root / "a") == os.getpid()
        (root / "a" / ".lock").write_text("1")  # as a stranger would
        assert writer_of(root / "a") is None
    (root / "b" / ".lock").write_text(str(os.getpid()))
    assert writer_of(root / "b") is None


def test_a_directory_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(tmp_path / "nothing")]) == 2
    assert "is no directory" in capsys.readouterr().err


WRITER = """
import signal, sys
from pathlib import Path
from rl_training.experiment.runs import RunLock
with RunLock(Path(sys.argv[1])):
    print("locked", flush=True)
    signal.sigwait([signal.SIGTERM])
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_follows_the_runs_and_its_button_stops_one(
    root: Path, served: tuple[Board, int], tmp_path: Path
) -> None:
    held = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])" + WRITER
    writer = subprocess.Popen([sys.executable, "-c", held, str(root / "a")], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "locked\n"
        with browsing(tmp_path) as browser:
            browser.open(f"http://127.0.0.1:{served[1]}/")
            assert browser.evaluate("document.documentElement.scrollWidth") <= 390
            add_row(root / "b", 40, 123.0)
            browser.until("document.querySelector('#live table').textContent.includes('40')")
            assert browser.evaluate("document.querySelectorAll('button[data-stop]').length") == 1
            browser.evaluate("document.querySelector('button[data-stop]').click()")
            browser.until("document.querySelectorAll('button[data-stop]').length === 0")
        assert writer.wait(timeout=30) == 0
    finally:
        writer.kill()
        writer.wait()
