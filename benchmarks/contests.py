"""`make contests`: what two learners reach on a task in equal steps, over the same seeds.

Every finished seed is kept in `benchmarks/results/contests/`, so that a stopped call goes on where it was; the table in
`docs/benchmarks.md` is made from these files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compare_sb3 import PYTHON, write_section
from benchmarks.learn import RESULTS, ROOT, keep, mean_over_seeds, measured, read, training

Command = Callable[[int], list[str]]


class Contest(NamedTuple):
    """The first has to be ahead of the second on the mean over the seeds."""

    task: str
    first: str
    second: str
    commands: tuple[Command, Command]
    seeds: int


def preset(name: str) -> Command:
    return lambda seed: training(name, seed)


def sb3(algorithm: str, env_id: str, steps: int, **kwargs: Any) -> Command:
    """A class of Stable-Baselines3 with its own values but for those given."""
    what = [algorithm, env_id, "--steps", str(steps), "--kwargs", json.dumps(kwargs)]
    return lambda seed: [str(PYTHON), "-m", "benchmarks.sb3_score", *what, "--seed", str(seed)]


def _sac(env_id: str) -> Contest:
    """SAC beside Stable-Baselines3's, which acts at random for as long as ours."""
    task = env_id.partition("-")[0].lower()
    theirs = sb3("stable_baselines3:SAC", env_id, 100_000, learning_starts=5_000)
    return Contest(f"{env_id}, 100,000 steps", f"sac/{task}", "SB3's SAC", (preset(f"sac/{task}"), theirs), seeds=3)


CONTESTS = {
    "sac_hopper": _sac("Hopper-v5"),
    "sac_halfcheetah": _sac("HalfCheetah-v5"),
    "rainbow_breakout": Contest(
        "MinAtar Breakout, 1,000,000 steps",
        "dqn/minatar_breakout (Rainbow)",
        "plain DQN",
        (preset("dqn/minatar_breakout"), preset("dqn/minatar_breakout_plain")),
        seeds=3,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contests", nargs="*", help=f"of {', '.join(CONTESTS)}; default: all")
    parser.add_argument("--side", type=int, choices=(0, 1), help="train the first or the second learner only")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time [2]")
    args = parser.parse_args()
    chosen = args.contests or list(CONTESTS)
    if unknown := [name for name in chosen if name not in CONTESTS]:
        parser.error(f"unknown contest {', '.join(unknown)}; there are {', '.join(CONTESTS)}")
    sides = (0, 1) if args.side is None else (args.side,)
    works = [(name, side, seed) for seed in range(5) for name in chosen for side in sides]
    missing = [work for work in works if work[2] < CONTESTS[work[0]].seeds and str(work[2]) not in results(*work[:2])]
    with ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda work: train(*work), missing):
            print(line, flush=True)
    write_section(ROOT / "docs" / "benchmarks.md", "contests", table())
    return 0 if all(is_ahead(name) for name in chosen) else 1


def train(name: str, side: int, seed: int) -> str:
    result = measured(CONTESTS[name].commands[side](seed))
    keep(result_path(name, side), str(seed), result)
    return f"{name} {CONTESTS[name][1 + side]} seed {seed}: {result['return_mean']} in {result['cpu_seconds']} CPU s"


def result_path(name: str, side: int) -> Path:
    return RESULTS / "contests" / f"{name}_{('first', 'second')[side]}.json"


def results(name: str, side: int) -> dict[str, Any]:
    return read(result_path(name, side))


def has_begun(name: str) -> bool:
    """Whether both sides have a result."""
    return all(results(name, side) for side in (0, 1))


def is_ahead(name: str) -> bool:
    if not has_begun(name):
        return False
    first, second = (mean_over_seeds(results(name, side), "return_mean") for side in (0, 1))
    return first > second


def table() -> str:
    lines = ["| task | learner | seeds | mean | each seed | CPU s a seed |", "|---|---|---|---|---|---|"]
    for name, contest in CONTESTS.items():
        if has_begun(name):
            lines += [_row(name, side, contest) for side in (0, 1)]
    return "\n".join([*lines, "", "Again: `make contests`"])


def _row(name: str, side: int, contest: Contest) -> str:
    found = results(name, side)
    each = ", ".join(f"{found[seed]['return_mean']:,.1f}" for seed in sorted(found))
    mean, seconds = (mean_over_seeds(found, metric) for metric in ("return_mean", "cpu_seconds"))
    cells = [contest.task, contest[1 + side], len(found), f"{mean:,.1f}", each, f"{seconds:,.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
