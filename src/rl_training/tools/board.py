"""A local page about all runs below a directory, which follows them while they train and can ask them to stop.

It listens on this machine only. A page of another origin can neither read it, since other host names are refused, nor
press its button, which needs a token that only this page has. All that runs say is escaped: strangers make some.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.logging import JSONL_NAME
from rl_training.experiment.presets import ASSETS
from rl_training.experiment.runs import list_runs, writer_of
from rl_training.runtime.tracking import videos_of
from rl_training.tools.compare import METRIC, runs_by_env
from rl_training.tools.curves import RunCurves, read_run
from rl_training.tools.figures import drawn_curves
from rl_training.tools.report import PAGE, run_row, table

HOST = "127.0.0.1"
MOST_BYTES = 10_000  # of what the page sends
MOST_VIDEOS = 20
VIDEO_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Board:
    """Makes what the page shows, and does what its button asks for."""

    def __init__(self, root: Path, *, interval_s: float = 5.0) -> None:
        self.root = root
        self.interval_s = interval_s
        self.token = secrets.token_urlsafe(32)
        self._drawing = threading.Lock()
        self._drawn: tuple[Any, str] | None = None  # what the last text was made of, and the text

    def page(self, query: dict[str, str], nonce: str) -> str:
        fields = {key: escape(query.get(key, "")) for key in ("where", "by")}
        interval = str(round(1000 * self.interval_s))
        template = Template((ASSETS / "board.html").read_text(encoding="utf-8").replace("<script>", "$script"))
        opened = f'<script nonce="{nonce}">'
        body = template.substitute(fields, live=self.live(query), token=self.token, interval_ms=interval, script=opened)
        page = PAGE.read_text(encoding="utf-8").replace("<script>", "$script")
        title = escape(f"runs in {self.root}")
        return Template(page).substitute(title=title, refresh="", about="", body=body, script=opened)

    def live(self, query: dict[str, str]) -> str:
        """The part that moves. It is made again only if a run, or the query, has changed."""
        paths = [info.path for info in list_runs(self.root)]
        writers = {path: writer_of(path) for path in paths}
        marks = [(path, writers[path], _mark(path / JSONL_NAME), tuple(videos_of(path))) for path in paths]
        made_of = (tuple(sorted(query.items())), tuple(marks))
        with self._drawing:
            if self._drawn is None or self._drawn[0] != made_of:
                running = [path for path in paths if writers[path] is not None]
                self._drawn = made_of, "\n".join(_live_parts(paths, running, query, self.root))
            return self._drawn[1]

    def stop(self, run: str) -> str:
        """Asks the process that writes a run to finish its iteration, save and end."""
        path = next((info.path for info in list_runs(self.root) if str(info.path) == run), None)
        pid = None if path is None else writer_of(path)
        if pid is None:
            raise ConfigError(f"no process is writing {run}")
        os.kill(pid, signal.SIGTERM)
        return f"asked {run} to save and to end"

    def video(self, name: str) -> Path:
        """A film of one of the runs, by its path below the directory."""
        films = (film for info in list_runs(self.root) for film in videos_of(info.path))
        found = next((film for film in films if film.relative_to(self.root).as_posix() == name), None)
        if found is None:
            raise ConfigError(f"there is no video {name!r:.100}")
        return found


def chosen_runs(runs: Iterable[RunCurves], where: str) -> list[RunCurves]:
    """The runs whose keys have the values of `key=value key=value`."""
    try:
        pairs = [word.partition("=") for word in shlex.split(where)]
    except ValueError as error:
        raise ConfigError(f"{where!r:.60} cannot be read: {error}; write key=value key=value") from error
    for key, equals, _ in pairs:
        if not equals:
            raise ConfigError(f"{key!r:.60} says no value; write key=value")
    return [run for run in runs if all(str(run.setting(key)) == value for key, _, value in pairs)]


def _live_parts(paths: list[Path], running: list[Path], query: dict[str, str], root: Path) -> Iterator[str]:
    try:
        runs = chosen_runs([read_run(path) for path in paths], query.get("where", ""))
        shown = [path for path in running if any(run.path == path for run in runs)]
        if shown:
            yield "<h2>Running</h2><ul>" + "".join(map(_running_item, shown)) + "</ul>"
        for env, of_env in runs_by_env([run for run in runs if run.rows]).items():
            yield f"<h2>{escape(env)}</h2>"
            caption = "<figcaption>learning curves, and schedules as they were used</figcaption>"
            yield f"<figure>{drawn_curves(of_env, 'return_mean', query.get('by') or None)}{caption}</figure>"
        yield "<h2>Runs</h2>"
        yield table([run_row(run, METRIC) for run in runs]) if runs else "<p>There are none like that.</p>"
        yield from _videos([film for run in runs for film in videos_of(run.path)][:MOST_VIDEOS], root)
    except RLTrainingError as error:
        yield f'<p class="notes">{escape(str(error))}</p>'


def _running_item(path: Path) -> str:
    name = escape(str(path))
    return f'<li>{name} <button data-stop="{name}">stop</button></li>'


def _videos(films: list[Path], root: Path) -> Iterator[str]:
    if films:
        yield "<h2>Videos</h2>"
    for film in films:
        name = film.relative_to(root).as_posix()
        source = f'"/video/{quote(name)}"'
        video = f"<video src={source} controls preload=none data-idle></video>"
        shown = f'<img src={source} alt="">' if film.suffix.lower() == ".gif" else video
        yield f"<figure>{shown}<figcaption>{escape(name)}</figcaption></figure>"


def _mark(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


class Handler(BaseHTTPRequestHandler):
    """Answers one browser's requests."""

    board: Board
    server_version, sys_version = "board", ""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        if address.path == "/":
            nonce = secrets.token_urlsafe(16)
            self._guarded(lambda: self._send(self.board.page(query, nonce), "text/html; charset=utf-8", nonce=nonce))
        elif address.path == "/live":
            self._guarded(lambda: self._send(self.board.live(query), "text/html; charset=utf-8"))
        elif address.path.startswith("/video/"):
            self._guarded(self._send_video)
        else:
            self._send("there is nothing here", status=404)

    def do_POST(self) -> None:
        """The button. The token proves that this page sent it, which another origin's page cannot read."""
        if self.path != "/stop":
            self._send("there is nothing here", status=404)
        elif not secrets.compare_digest(self.headers.get("X-Board-Token", "").encode(), self.board.token.encode()):
            self._send("this page is of another board; load it again", status=403)
        else:
            self._guarded(lambda: self._send(self.board.stop(self._asked_run())))

    def _asked_run(self) -> str:
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(min(int(length), MOST_BYTES)) if length.isdigit() else b""
        try:
            return str(json.loads(body)["run"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError("the page did not say which run") from error

    def _send_video(self) -> None:
        from_name = urlsplit(self.path).path.removeprefix("/video/")
        film = self.board.video(unquote(from_name))
        self._send(film.read_bytes(), VIDEO_TYPES[film.suffix.lower()])

    def _guarded(self, answer: Callable[[], None]) -> None:
        """Refuses a name that only resolves to this machine, and says what is wrong with a request."""
        if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
            self._send("ask for it as 127.0.0.1 or localhost", status=400)
            return
        try:
            answer()
        except RLTrainingError as error:
            self._send(str(error), status=400)

    def _send(
        self, content: str | bytes, kind: str = "text/plain; charset=utf-8", *, status: int = 200, nonce: str = ""
    ) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", POLICY.format(nonce=nonce or secrets.token_urlsafe(16)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page that looks every few seconds would fill the terminal."""


@contextmanager
def serving_board(board: Board, port: int) -> Iterator[ThreadingHTTPServer]:
    """A server of the page, which has yet to be told to serve."""
    handler = type("BoardHandler", (Handler,), {"board": board})
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise ConfigError(f"cannot listen at {HOST}:{port}: {error.strerror}; choose another --port") from error
    server.daemon_threads = True
    with server:
        yield server
