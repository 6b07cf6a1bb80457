"""Plants one bug after the other in a copy of the project, and asks its tests: `python -m benchmarks.mutants`.

The table goes to a marked section of `docs/reliability.md`. A bug that no test notices survives, and is a failure.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import gymnasium  # noqa: F401 - libraries are loaded once, here, and the package in every child
import numba  # noqa: F401
import pydantic  # noqa: F401
import pytest
import torch

from benchmarks.compare_sb3 import write_section
from benchmarks.mutants.mutant import PACKAGE, ROOT, Mutant
from benchmarks.mutants.table import FAMILIES

PAGE = ROOT / "docs" / "reliability.md"
KILLED = 1  # pytest's exit code for tests that failed
os.environ["OMP_NUM_THREADS"] = "1"
SECONDS = 300  # a test that hangs has noticed, too


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs whose description or family has this text")
    parser.add_argument("--no-page", action="store_true", help=f"print only, leave {PAGE.relative_to(ROOT)} alone")
    args = parser.parse_args()
    torch.set_num_threads(1)  # no thread runs where a child is forked
    chosen = {
        family: [m for m in mutants if args.only in m.bug or args.only in family]
        for family, mutants in FAMILIES.items()
    }
    clean = sorted({test for mutants in chosen.values() for mutant in mutants for test in mutant.tests})
    if not clean:
        parser.error(f"no planted bug is described by {args.only!r}")
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, copy / part)  # with the times of files, so that bytecode stays good
        shutil.copy(ROOT / "pyproject.toml", copy)
        if run_tests(copy, clean, timeout=len(clean) * SECONDS):
            print("the tests fail without any bug")
            return 2
        survivors, rows = 0, []
        for family, mutants in chosen.items():
            for mutant in mutants:
                killed, seconds = attempt(copy, mutant)
                survivors += not killed
                rows.append((family, mutant, killed))
                print(f"{'killed' if killed else 'SURVIVED':8} {seconds:5.1f} s  {family}: {mutant.bug}", flush=True)
    text = report(rows)
    print(text.splitlines()[0])
    if not args.no_page and not args.only:
        write_section(PAGE, "mutants", text)
    return 1 if survivors else 0


def attempt(copy: Path, mutant: Mutant) -> tuple[bool, float]:
    """(whether a test noticed, the seconds it took); the copy is as it was afterwards."""
    path, started = copy / PACKAGE / mutant.file, time.perf_counter()
    source, written = path.read_text(), path.stat().st_mtime_ns
    path.write_text(mutant.planted(source))
    try:
        killed = run_tests(copy, mutant.tests, timeout=SECONDS) == KILLED
    finally:
        path.write_text(source)
        os.utime(path, ns=(written, written))  # its bytecode is good again
    return killed, time.perf_counter() - started


def run_tests(copy: Path, tests: Sequence[str], *, timeout: float) -> int:
    """pytest's exit code, from a child that has the libraries of this process and imports the package anew."""
    child = multiprocessing.get_context("fork").Process(target=_be_pytest, args=(copy, tests))
    child.start()
    child.join(timeout)
    if child.is_alive():
        child.kill()
        child.join()
        return KILLED
    return child.exitcode or 0


def _be_pytest(copy: Path, tests: Sequence[str]) -> None:
    os.chdir(copy)
    sys.path[:0] = [str(copy / "src"), str(copy)]
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]))


def report(rows: list[tuple[str, Mutant, bool]]) -> str:
    killed = sum(noticed for _, _, noticed in rows)
    lines = [
        f"{date.today()}: {killed} of {len(rows)} planted bugs are noticed by the tests that are named.",
        "",
        "| family | bug | in | noticed by | |",
        "|---|---|---|---|---|",
        *(
            f"| {family} | {mutant.bug} | `{mutant.file}` | {named(mutant)} | {'yes' if noticed else 'NO'} |"
            for family, mutant, noticed in rows
        ),
        "",
        "Again: `make mutants`",
    ]
    return "\n".join(lines)


def named(mutant: Mutant) -> str:
    """The files that have its tests."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(test.partition("::")[0] for test in mutant.tests))


if __name__ == "__main__":
    sys.exit(main())
