"""The display of a run: a live table in a terminal, one line in a notebook, plain lines elsewhere, or nothing."""

from __future__ import annotations

import importlib
import math
import os
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

from rl_training.errors import ConfigError
from rl_training.runtime.readings import Readings, Row, number_text, progress_text

if TYPE_CHECKING:
    from rich.console import RenderableType

Clock = Callable[[], float]
Mode = Literal["auto", "live", "notebook", "plain", "none"]
DisplayT = TypeVar("DisplayT", bound="Display")
SPEED_WINDOW_SECONDS = 30.0
MIN_SECONDS_BETWEEN_REFRESHES = 0.25
PLAIN_WIDTH = 80
BAR_WIDTH, LEAST_BAR_WIDTH = 24, 8
GAP = 3  # between groups of metrics
TABLE_ROWS = 10  # of results that stay in a notebook


class Display:
    """Shows nothing; the base of those that show something."""

    def update(self, row: Row, step: int) -> None:
        """Show the metrics at a step."""

    def message(self, text: str) -> None:
        """Show a line of text, once."""

    def close(self) -> None:
        """Leave the terminal as it was found, with the last state on it."""

    def __enter__(self: DisplayT) -> DisplayT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Speed:
    """Steps per second over the recent past, beginning with the first step it sees."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, step: int) -> float | None:
        """The speed, or None while there is nothing to measure it by."""
        now = self._clock()
        self._seen.append((now, step))
        # Two points stay, however old: a slow run has a speed as well.
        while len(self._seen) > 2 and now - self._seen[1][0] > SPEED_WINDOW_SECONDS:
            self._seen.popleft()
        first_time, first_step = self._seen[0]
        return (step - first_step) / (now - first_time) if now > first_time and step > first_step else None


class _Watching(Display):
    """Knows how far the run is, and what it reads."""

    def __init__(self, total_steps: int, readings: Readings, clock: Clock) -> None:
        self.total_steps = total_steps
        self.readings = readings
        self._clock = clock
        self._speed = Speed(clock)
        self._last_refresh = -math.inf

    def progress(self, row: Row, step: int) -> str:
        self.readings.take(row, step)
        return progress_text(step, self.total_steps, self._speed.update(step))

    def is_due(self) -> bool:
        """Whether it is time to draw again; then it is not for a while."""
        due = self._clock() - self._last_refresh >= MIN_SECONDS_BETWEEN_REFRESHES
        if due:
            self._last_refresh = self._clock()
        return due


class PlainDisplay(_Watching):
    """One readable line per update, for files and pipes."""

    def __init__(self, total_steps: int, readings: Readings, *, stream: TextIO, clock: Clock) -> None:
        super().__init__(total_steps, readings, clock)
        self._stream = stream

    def update(self, row: Row, step: int) -> None:
        self.message(f"{self.progress(row, step)} {self.readings.line()}".rstrip())

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveDisplay(_Watching):
    """A progress bar and a table of metrics that stay in place, as wide as the terminal."""

    def __init__(self, total_steps: int, readings: Readings, *, stream: TextIO, clock: Clock) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(total_steps, readings, clock)
        # Refreshed by `update` and not by rich's thread: environment workers may be forked at any time.
        self._live = Live(console=Console(file=stream), auto_refresh=False)
        self._live.start()

    def update(self, row: Row, step: int) -> None:
        progress = self.progress(row, step)
        self._live.update(self._render(progress, step), refresh=self.is_due())

    def message(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _render(self, progress: str, step: int) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = self._live.console.width
        header = Table.grid(padding=(0, 1))
        room = max(LEAST_BAR_WIDTH, min(BAR_WIDTH, width - len(progress) - 2))
        bar = ProgressBar(total=max(self.total_steps, 1), completed=min(step, self.total_steps), width=room)
        header.add_row(bar, Text(progress))
        return Group(header, *(_side_by_side(groups) for groups in shelves(self.readings.groups(), width)))


class NotebookDisplay(_Watching):
    """One line that is written over; at the end the results stay as a table."""

    def __init__(self, total_steps: int, readings: Readings, *, clock: Clock) -> None:
        super().__init__(total_steps, readings, clock)
        self._show: Any = importlib.import_module("IPython.display").display
        self._line = self._show(_as_text(""), raw=True, display_id=True)
        self._progress = ""

    def update(self, row: Row, step: int) -> None:
        self._progress = self.progress(row, step)
        if self.is_due():
            self._line.update(_as_text(f"{self._progress} {self.readings.line()}"), raw=True)

    def message(self, text: str) -> None:
        self._show(_as_text(text), raw=True)

    def close(self) -> None:
        results = self.readings.results()[-TABLE_ROWS:]
        lines = [f"{step:>12}  {score}" for step, score in [("step", "evaluation"), *results]] if results else []
        self._line.update(_as_text("\n".join([self._progress, *lines])), raw=True)


def _as_text(text: str) -> dict[str, str]:
    return {"text/plain": text}


def open_display(
    total_steps: int,
    title: str,
    *,
    controls: tuple[str, ...] = (),
    constants: Mapping[str, float] | None = None,
    stream: TextIO | None = None,
    mode: Mode = "auto",
    clock: Clock = time.perf_counter,
) -> Display:
    """The display for a stream (stderr); `auto` is what fits it: live, in a notebook its line, or plain lines.

    `controls` are those that move; the `constants` are told once, below the title.
    """
    stream = sys.stderr if stream is None else stream
    constants = constants or {}
    readings = Readings(controls, constants)
    if mode == "none":
        return Display()
    shown: Display
    match _fitting(stream) if mode == "auto" else mode:
        case "live":
            shown = LiveDisplay(total_steps, readings, stream=stream, clock=clock)
        case "notebook":
            shown = NotebookDisplay(total_steps, readings, clock=clock)
        case "plain":
            shown = PlainDisplay(total_steps, readings, stream=stream, clock=clock)
        case _:
            raise ConfigError(f"unknown display mode {mode!r}; choose from auto, live, notebook, plain, none")
    shown.message(title)
    if constants:
        told = ", ".join(f"{name} {number_text(value)}" for name, value in constants.items())
        shown.message(textwrap.fill(f"constant: {told}", PLAIN_WIDTH, subsequent_indent="  "))
    return shown


def _fitting(stream: TextIO) -> str:
    ipython: Any = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return "notebook"
    return "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"


def shelves(groups: Mapping[str, Mapping[str, str]], width: int) -> list[dict[str, Mapping[str, str]]]:
    """The groups side by side as far as the width reaches, and the rest below."""
    rows: list[dict[str, Mapping[str, str]]] = []
    left = 0
    for name, metrics in groups.items():
        wanted = max(len(name), _name_width(metrics) + 1 + max(map(len, metrics.values()))) + GAP
        if wanted > left:
            rows.append({})
            left = width + GAP
        rows[-1][name] = metrics
        left -= wanted
    return rows


def _name_width(metrics: Mapping[str, str]) -> int:
    return max(map(len, metrics))


def _side_by_side(groups: Mapping[str, Mapping[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, GAP))
    table.add_row(*(Text(name, style="bold cyan") for name in groups))
    table.add_row(*(_two_columns(metrics) for metrics in groups.values()))
    return table


def _two_columns(metrics: Mapping[str, str]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in metrics.items():
        table.add_row(Text(name), Text(value))
    return table
