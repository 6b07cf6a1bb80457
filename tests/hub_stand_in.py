"""A hub of models on this machine: as much of the Hugging Face Hub's API as pushing and pulling ask for."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

SHA = "a" * 40


class Hub(ThreadingHTTPServer):
    """Repositories by name, each with its files."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.fetched: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        """It is silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            name = self._full_name(json.loads(body))
            self.server.repos.setdefault(name, {})
            self._answer({"url": f"{self.server.url}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/.+", path):
            files = json.loads(body)["files"]
            told = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]
            self._answer({"files": told})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/.+", path):
            for line in body.decode().splitlines():
                each = json.loads(line)
                if each["key"] == "file":
                    content = base64.b64decode(each["value"]["content"])
                    self.server.repos[match[1]][each["value"]["path"]] = content
            url = f"{self.server.url}/{match[1]}/commit/{SHA}"
            self._answer({"commitUrl": url, "commitOid": SHA, "success": True})
        else:
            self._answer({"error": f"no such thing: {path}"}, 404)

    @staticmethod
    def _full_name(message: dict[str, Any]) -> str:
        owner = message.get("organization")
        return f"{owner}/{message['name']}" if owner else str(message["name"])

    def do_GET(self) -> None:
        self._get()

    def do_HEAD(self) -> None:
        self._get()

    def _get(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/models/(.+?)/tree/[^/]+.*", path):
            files = self.server.repos.get(match[1], {})
            self._answer([{"type": "file", "path": n, "size": len(c), "oid": _oid(c)} for n, c in files.items()])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?", path):
            if match[1] not in self.server.repos:
                self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
                return
            siblings = [{"rfilename": name} for name in self.server.repos[match[1]]]
            self._answer({"id": match[1], "modelId": match[1], "sha": SHA, "siblings": siblings, "tags": []})
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            content = self.server.repos[match[1]][match[2]]
            if self.command == "GET":
                self.server.fetched.append(match[2])
            self._send(content, 200, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": SHA})
        else:
            self._answer({"error": f"no such thing: {path}"}, 404)

    def _answer(self, message: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(message).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
