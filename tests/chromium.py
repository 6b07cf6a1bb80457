"""A headless Chromium that is told what to do over a pipe, without further libraries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
PATIENCE_S = 60.0


class Browser:
    """One page; commands are those of the DevTools protocol."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._writer, self._reader = (
            os.fdopen(to_browser, "wb", buffering=0),
            os.fdopen(from_browser, "rb", buffering=0),
        )
        self._received = b""
        self._last = 0
        self._session = ""
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = str(attached["sessionId"])

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def open(self, url: str, *, width: int = 390, height: int = 844) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        self._call("Page.navigate", {"url": url})
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = self._call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Waits until the expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.evaluate(script):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.05)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            part = self._reader.read(65_536)
            assert part, "the browser is gone"
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    commands, answers = os.pipe(), os.pipe()

    def connect() -> None:
        os.dup2(commands[0], 3)
        os.dup2(answers[1], 4)

    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(
        command, preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(commands[0])
    os.close(answers[1])
    browser = Browser(commands[1], answers[0])
    try:
        yield browser
    finally:
        browser.close()
        process.kill()
        process.wait()
