"""`TrackedFiles`: the files of a run that its trackers keep, by choice."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.errors import CheckpointError
from rl_training.experiment.checkpointing import resolve_checkpoint
from rl_training.experiment.logging import JSONL_NAME
from rl_training.experiment.rows import STEP_KEY
from rl_training.experiment.runs import parse_row
from rl_training.experiment.trackers import Tracker
from rl_training.runtime.callbacks import Callback

if TYPE_CHECKING:
    from rl_training.runtime.session import Session

VIDEOS = (".mp4", ".gif")


def videos_of(run_dir: Path) -> list[Path]:
    """The films in a run's directory and in its `videos`; a link is not followed."""
    files = [*run_dir.glob("*"), *run_dir.glob("videos/*")]
    return sorted(p for p in files if p.suffix.lower() in VIDEOS and p.is_file() and not p.is_symlink())


class TrackedFiles(Callback):
    """Hands files to the trackers: the config when a run begins, the others when it ends."""

    def __init__(self, run_dir: Path, trackers: Sequence[Tracker], chosen: Collection[str]) -> None:
        self.run_dir = run_dir
        self.trackers = trackers if chosen else ()
        self.chosen = chosen

    def on_start(self, session: Session) -> None:
        if "config" in self.chosen:
            # Under its own name it would make a run of the folder that a tracker keeps it in.
            self._keep_text("config", "settings.yaml", (self.run_dir / "config.yaml").read_text(encoding="utf-8"))

    def on_end(self, session: Session) -> None:
        if "controls" in self.chosen:
            self._keep_controls([resolved.control.name for resolved in session.controls.controls])
        if "videos" in self.chosen:
            self._keep("videos", videos_of(self.run_dir))
        if "checkpoint" in self.chosen:
            self._keep("checkpoint", self._last_checkpoint())

    def _last_checkpoint(self) -> list[Path]:
        try:
            return sorted(resolve_checkpoint(self.run_dir).iterdir())
        except CheckpointError:  # the run ended before it had one
            return []

    def _keep_controls(self, names: list[str]) -> None:
        """Keeps the value of every control at every step that was logged, as a table."""
        path = self.run_dir / JSONL_NAME
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        rows = [row for row in map(parse_row, lines) if row is not None and any(name in row for name in names)]
        table = [[STEP_KEY, *names], *([row.get(name, "") for name in (STEP_KEY, *names)] for row in rows)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        self._keep_text("controls", "controls.csv", text.getvalue())

    def _keep_text(self, kind: str, name: str, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            staged = Path(folder) / name
            staged.write_text(text, encoding="utf-8")
            self._keep(kind, [staged])

    def _keep(self, kind: str, files: Sequence[Path]) -> None:
        if files:
            for tracker in self.trackers:
                tracker.keep(kind, {path.name: path for path in files})
