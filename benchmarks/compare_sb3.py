"""Ours against Stable-Baselines3, or another peer, on the same work, in alternating processes.

The figures go to a marked section of `docs/benchmarks.md`. Ratios are medians over rounds: in a round every
measurement is taken once, so that whatever else the machine does falls on all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.families import FAMILIES, Case, Family

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PYTHON = ROOT / ".venv-bench" / "bin" / "python"
COLUMNS = ("envs", "ours", "steps per CPU s", "theirs", "CPU ratio", "wall ratio", "bar")
FLOOR_COLUMNS = ("floor", "of the floor")
FLOOR = (
    " The floor is the same number of environment steps, forward passes and optimiser steps, with our networks in "
    "NumPy and no loss, sampling or storage around them."
)


class Job(NamedTuple):
    peer: str
    envs: int
    backend: str


Round = dict[Job, dict[str, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--family", choices=FAMILIES, default="ppo")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="alternating repeats [5]")
    parser.add_argument("--no-page", action="store_true", help=f"print only, leave {PAGE.relative_to(ROOT)} alone")
    args = parser.parse_args()
    family = FAMILIES[args.family]
    rounds = [measure_round(family, number, args.rounds) for number in range(1, args.rounds + 1)]
    text = report(family, rounds, memory=work(family, Job("memory", 8, "auto")) if family.watches_memory else {})
    print(text)
    if not args.no_page:
        write_section(PAGE, f"bench:{family.name}", text)
    return 0 if all(cpu_ratio(family, case, rounds) >= case.bar for case in family.cases) else 1


def jobs(family: Family) -> list[Job]:
    """Each measurement once, ours and theirs side by side."""
    kinds = (ours, theirs, floor) if family.has_floor else (ours, theirs)
    return list(dict.fromkeys(kind(family, case) for case in family.cases for kind in kinds))


def ours(_family: Family, case: Case) -> Job:
    return Job("ours", case.envs, case.backend)


def theirs(family: Family, case: Case) -> Job:
    return Job(family.runner, case.envs, "sync")


def floor(_family: Family, case: Case) -> Job:
    return Job("floor", case.envs, case.backend)


def measure_round(family: Family, number: int, rounds: int) -> Round:
    results: Round = {}
    for job in jobs(family):
        results[job] = work(family, job)
        speed = results[job]["steps"] / results[job]["cpu_seconds"]
        print(f"round {number}/{rounds} {' '.join(map(str, job))}: {speed:,.0f} steps per CPU s", file=sys.stderr)
    return results


def work(family: Family, job: Job) -> dict[str, Any]:
    """A process of its own, with one thread, so that nothing leaks from one measurement into the next."""
    arguments = ["--family", family.name, "--peer", job.peer, "--envs", str(job.envs), "--backend", job.backend]
    # A core type that is set for OpenBLAS would keep NumPy, and none of the others, from the processor's instructions.
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    done = subprocess.run(
        [str(PYTHON), "-m", "benchmarks.worker", *arguments],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def speed(job: Job, rounds: list[Round], clock: str = "cpu_seconds") -> float:
    return median(results[job]["steps"] / results[job][clock] for results in rounds)


def ratio(fast: Job, slow: Job, rounds: list[Round], clock: str) -> float:
    """How many times the steps per second, the median over rounds."""
    pairs = ((results[fast], results[slow]) for results in rounds)
    return median(a["steps"] / a[clock] / (b["steps"] / b[clock]) for a, b in pairs)


def cpu_ratio(family: Family, case: Case, rounds: list[Round]) -> float:
    return ratio(ours(family, case), theirs(family, case), rounds, "cpu_seconds")


def report(family: Family, rounds: list[Round], memory: dict[str, float]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in work(family, Job("versions", 1, "auto")).items())
    columns = COLUMNS + (FLOOR_COLUMNS if family.has_floor else ())
    machine = f"{os.cpu_count()} cores of {cpu_model()}, one thread, {len(rounds)} alternating rounds, medians"
    lines = [
        f"{date.today()}, {machine}; {versions}.",
        "",
        f"The work: {family.algo} on {family.env_id}, {family.work}. Ours {family.our_note}, "
        f"{family.peer.replace(':', '.')} {family.note}; nothing is evaluated or saved."
        + (FLOOR if family.has_floor else ""),
        "",
        f"| {' | '.join(columns)} |",
        "|" + "---|" * len(columns),
        *(table_row(family, case, rounds) for case in family.cases),
    ]
    if memory:
        sizes = ", ".join(f"{size:.0f} MB after {int(steps):,} steps" for steps, size in memory.items())
        lines += ["", f"Resident memory of our run: {sizes}."]
    lines += ["", f"Again: `python -m benchmarks.compare_sb3 --family {family.name}`"]
    return "\n".join(lines)


def table_row(family: Family, case: Case, rounds: list[Round]) -> str:
    our, their, cpu = ours(family, case), theirs(family, case), cpu_ratio(family, case, rounds)
    cells = [
        str(case.envs),
        case.backend,
        f"{speed(our, rounds):,.0f}",
        f"{speed(their, rounds):,.0f}",
        f"{cpu:.2f}",
        f"{ratio(our, their, rounds, 'wall_seconds'):.2f}",
        f"{'met' if cpu >= case.bar else 'missed'}: {case.bar:g}",
    ]
    if family.has_floor:
        least = floor(family, case)
        cells += [f"{speed(least, rounds):,.0f}", f"{ratio(our, least, rounds, 'cpu_seconds'):.0%}"]
    return f"| {' | '.join(cells)} |"


def cpu_model() -> str:
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    return names[0] if names else "an unnamed CPU"


def write_section(page: Path, name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->`, or appends it."""
    old = page.read_text() if page.is_file() else "# Benchmarks\n"
    section = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- /{re.escape(name)} -->", re.DOTALL)
    new = pattern.sub(lambda _: section, old) if pattern.search(old) else f"{old.rstrip()}\n\n{section}\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(new)


if __name__ == "__main__":
    sys.exit(main())
