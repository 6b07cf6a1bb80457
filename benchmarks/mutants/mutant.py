"""`Mutant`: one planted bug, as a replacement of text that occurs once in its file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src") / "rl_training"


class Mutant(NamedTuple):
    """`tests` are files in `tests/`, or functions of them, of which at least one must fail."""

    bug: str
    file: str  # below the package
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """The source with the bug in it."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.bug}: its old text occurs {source.count(self.old)} times in {self.file}")
        return source.replace(self.old, self.new)
