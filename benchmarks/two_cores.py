"""What a second core brings without Ray: `python -m benchmarks.two_cores`. It needs a machine that does nothing else.

The figures go to a marked section of `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import date
from statistics import median
from typing import Any, NamedTuple

from benchmarks.compare_sb3 import PAGE, cpu_model, write_section
from benchmarks.ray import speed
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.manager import train_run


class Work(NamedTuple):
    preset: str
    steps: int
    one: dict[str, Any]
    two: dict[str, Any]
    bar: float


AHEAD = ({"collect_ahead": False}, {"collect_ahead": True})
SLOW = {"env_id": "benchmarks.ray:slow_cartpole"}
WORKS = {
    "PPO on HalfCheetah, `--collect-ahead`": Work("ppo/halfcheetah", 100_000, *AHEAD, 1.5),
    "PPO on CartPole with steps of 1 ms, `--backend async`": Work(
        "ppo/cartpole", 8_000, {**SLOW, "backend": "sync"}, {**SLOW, "backend": "async"}, 1.7
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="alternating repeats [3]")
    args = parser.parse_args()
    speeds = {name: [compared(work) for _ in range(args.rounds)] for name, work in WORKS.items()}
    text = report(speeds)
    print(text)
    write_section(PAGE, "bench:two_cores", text)
    return 0 if all(ratio(speeds[name]) >= work.bar for name, work in WORKS.items()) else 1


def compared(work: Work) -> tuple[float, float]:
    """Steps per second of wall time with one process and with more: one round."""
    speeds = trained(work, work.one), trained(work, work.two)
    print(f"{work.preset}: {speeds[0]:,.0f} and {speeds[1]:,.0f} steps/s", file=sys.stderr)
    return speeds


def trained(work: Work, changes: dict[str, Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        own = {"output_dir": folder, "threads": 1, "total_timesteps": work.steps, "eval_episodes": 0}
        own |= {"checkpoint_interval": 10 * work.steps, **changes}
        return speed(dict(train_run(make_config(merge(load_preset(work.preset), own))).metrics))


def ratio(rounds: list[tuple[float, float]]) -> float:
    return median(two / one for one, two in rounds)


def report(speeds: dict[str, list[tuple[float, float]]]) -> str:
    lines = [
        f"{date.today()}, {os.cpu_count()} cores of {cpu_model()}, one thread in each process, steps per second of "
        f"wall time, medians of {len(next(iter(speeds.values())))} alternating rounds, without Ray.",
        "",
        "| work | one process | more | ratio | bar |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in speeds.items():
        one, two = (median(column) for column in zip(*rounds, strict=True))
        bar = WORKS[name].bar
        met = "met" if ratio(rounds) >= bar else "missed"
        lines.append(f"| {name} | {one:,.0f} | {two:,.0f} | {ratio(rounds):.2f} | {met}: {bar:g} |")
    return "\n".join([*lines, "", "Again: `python -m benchmarks.two_cores`"])


if __name__ == "__main__":
    sys.exit(main())
