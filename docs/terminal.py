"""Trains `ppo/cartpole` and draws its terminal, 80 columns wide, as it is at the end: docs/images/terminal.svg."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import rich.console

from rl_training.cli import main

COMMAND = ["train", "ppo/cartpole"]
PICTURE = Path(__file__).resolve().parent / "images" / "terminal.svg"


class Recorded(rich.console.Console):
    """The console of the live display: it keeps what stays on the screen."""

    last: Recorded

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"file": StringIO(), "record": True, "width": 80, "color_system": "truecolor"})
        Recorded.last = self
        self.print(f"$ rl-training {' '.join(COMMAND)}", markup=False, highlight=False)


def draw() -> str:
    answer = StringIO()
    rich.console.Console = Recorded  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(answer):
        os.chdir(folder)  # the run is in `runs`, as it is for everybody
        code = main([*COMMAND, "--display", "live"])
    if code:
        sys.exit(code)
    Recorded.last.print(f"\n{answer.getvalue().rstrip()}", markup=False, highlight=False, soft_wrap=True)
    return Recorded.last.export_svg(title="rl-training")


if __name__ == "__main__":
    PICTURE.write_text(draw())
