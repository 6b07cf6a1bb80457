"""Which line of the user's own code raised an error."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

PACKAGE = str(Path(__file__).parent)
LIBRARIES = tuple({PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))})


def told(error: BaseException) -> str:
    """The error with its class, and the file, line and source line at which the user's code raised it."""
    return f"{type(error).__name__}: {error}{raised_at(error)}"


def raised_at(error: BaseException) -> str:
    """` (file:line in function: source)`; empty for an error in which no code but libraries' had a part."""
    own = [frame for frame in _frames(error) if not frame.filename.startswith((*LIBRARIES, "<"))]
    if not own:
        return ""
    last = own[-1]
    source = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" ({last.filename}:{last.lineno} in {last.name}{': ' if source else ''}{source})"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False))
