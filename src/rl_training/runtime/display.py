"""The display of a run in the terminal: a live table, plain lines, or nothing."""

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO, TypeVar

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = Mapping[str, object]
Clock = Callable[[], float]
Mode = Literal["auto", "live", "plain", "none"]
DisplayT = TypeVar("DisplayT", bound="Display")
SPEED_WINDOW_SECONDS = 30.0
MIN_SECONDS_BETWEEN_REFRESHES = 0.25


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


class PlainDisplay(Display):
    """One readable line per update, for files and pipes."""

    def __init__(
        self, total_steps: int, title: str, *, controls: tuple[str, ...], stream: TextIO, clock: Clock
    ) -> None:
        self._total_steps = total_steps
        self._controls = controls
        self._stream = stream
        self._speed = Speed(clock)
        self.message(title)

    def update(self, row: Row, step: int) -> None:
        groups = group_metrics(row, self._controls)
        metrics = [f"{name} {value}" for name, value in {**groups["losses"], **groups["controls"]}.items()]
        progress = progress_text(step, self._total_steps, self._speed.update(step))
        self.message(" ".join([progress, *return_texts(row), *metrics]))

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveDisplay(Display):
    """A progress bar and a table of metrics that stay in place."""

    def __init__(
        self, total_steps: int, title: str, *, controls: tuple[str, ...], stream: TextIO, clock: Clock
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._total_steps = total_steps
        self._title = title
        self._controls = controls
        self._clock = clock
        self._speed = Speed(clock)
        self._last_refresh = -math.inf
        # Refreshed by `update` and not by rich's thread: environment workers may be forked at any time.
        self._live = Live(console=Console(file=stream), auto_refresh=False)
        self._live.start()

    def update(self, row: Row, step: int) -> None:
        speed = self._speed.update(step)
        due = self._clock() - self._last_refresh >= MIN_SECONDS_BETWEEN_REFRESHES
        self._live.update(self._render(row, step, speed), refresh=due)
        if due:
            self._last_refresh = self._clock()

    def message(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()

    def _render(self, row: Row, step: int, speed: float | None) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        header = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._total_steps, 1), completed=step, width=24)
        header.add_row(Text(self._title, style="bold"), bar, Text(progress_text(step, self._total_steps, speed)))
        groups = {name: metrics for name, metrics in group_metrics(row, self._controls).items() if metrics}
        table = Table.grid(padding=(0, 4))
        table.add_row(*(Text(name, style="bold cyan") for name in groups))
        table.add_row(*(_two_columns(metrics) for metrics in groups.values()))
        return Group(header, table)


def open_display(
    total_steps: int,
    title: str,
    *,
    controls: tuple[str, ...] = (),
    stream: TextIO | None = None,
    mode: Mode = "auto",
    clock: Clock = time.perf_counter,
) -> Display:
    """The display for a stream (stderr): `auto` is live on a terminal and plain lines elsewhere."""
    stream = sys.stderr if stream is None else stream
    if mode == "auto":
        mode = "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    if mode == "live":
        return LiveDisplay(total_steps, title, controls=controls, stream=stream, clock=clock)
    if mode == "plain":
        return PlainDisplay(total_steps, title, controls=controls, stream=stream, clock=clock)
    if mode == "none":
        return Display()
    raise ConfigError(f"unknown display mode {mode!r}; choose from auto, live, plain, none")


def progress_text(step: int, total_steps: int, speed: float | None) -> str:
    """`step 20,480/100,000 (20%) 18,200 steps/s ETA 0:04`; without a speed, no more than the first part."""
    text = f"step {step:,}/{total_steps:,} ({100 * step // max(total_steps, 1)}%)"
    if speed is None:
        return text
    return f"{text} {number_text(speed)} steps/s ETA {duration_text((total_steps - step) / speed)}"


def return_texts(row: Row) -> list[str]:
    """`return 123.4 ± 20.1` for every mean return in a row, evaluations included."""
    texts = []
    for name, mean in row.items():
        if name.endswith("return_mean") and _is_finite(mean):
            label = name.removesuffix("_mean")
            std = row.get(f"{label}_std")
            texts.append(f"{label} {number_text(mean)}" + (f" ± {number_text(std)}" if _is_finite(std) else ""))
    return texts


def group_metrics(row: Row, controls: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The metrics of a row, formatted, by what they tell about the run."""
    groups: dict[str, dict[str, str]] = {"returns": {}, "losses": {}, "controls": {}, "diagnostics": {}}
    for name, value in row.items():
        if name != "global_step":
            groups[_group_of(name, controls)][name] = number_text(value)
    return groups


def number_text(value: object) -> str:
    """Four digits of a number, or all of it if it is whole or large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return "-" if value is None else str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}"
    number = float(value)
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.4g}"


def duration_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` when there are no hours."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _group_of(name: str, controls: tuple[str, ...]) -> str:
    if name in controls:
        return "controls"
    if "loss" in name:
        return "losses"
    return "returns" if "return" in name or "episode" in name else "diagnostics"


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _two_columns(metrics: Mapping[str, str]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    for name, value in metrics.items():
        table.add_row(Text(name), Text(value))
    return table
