"""Long runs whose memory, descriptors and speed must stay level: `make soak`, `python -m benchmarks.soak`.

The second quarter of a run is compared with the last one: by then replays are full and everything is compiled. The
table goes to a marked section of `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benchmarks.compare_sb3 import write_section
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RUNS = {"ppo/cartpole": 3_000_000, "muzero/cartpole": 200_000, "dreamer/cartpole": 200_000}
SMALL_REPLAY = {"replay_capacity": 20_000}  # full well within the first quarter
SAMPLES = 80
MORE_MEMORY, LESS_SPEED = 1.03, 0.8  # what is still level on a machine that others use


class Sample(NamedTuple):
    step: int
    cpu_seconds: float
    megabytes: float
    descriptors: int


class Level(NamedTuple):
    """A quarter of a run."""

    steps_per_cpu_second: float
    megabytes: float
    descriptors: int


class Sampler(Callback):
    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def on_log(self, session: Session, row: dict[str, float]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.samples.append(
            Sample(
                session.progress.global_step,
                time.process_time(),
                pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
                len(os.listdir("/proc/self/fd")),
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose preset has this text")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps (default: all)")
    parser.add_argument("--no-page", action="store_true", help=f"print only, leave {PAGE.relative_to(ROOT)} alone")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    lines, level = [], True
    for preset, steps in RUNS.items():
        if args.only in preset:
            # A process of its own, so that none stands on another's memory.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                early, late = pool.apply(soak, (preset, int(steps * args.share)))
            level &= is_level(early, late)
            lines.append(line(preset, int(steps * args.share), early, late))
            print(lines[-1], flush=True)
    if not args.no_page and not args.only and args.share == 1.0:
        write_section(PAGE, "soak", report(lines))
    return 0 if level else 1


def soak(preset: str, steps: int) -> tuple[Level, Level]:
    """The second and the last quarter of a run of the preset."""
    shape = {"total_timesteps": steps, "log_interval": steps // SAMPLES, "eval_episodes": 0, "threads": 1}
    raw = load_preset(preset)
    replay = SMALL_REPLAY if raw["algo"] != "ppo" else {}
    session, sampler = Session(make_config(merge(raw, shape, {"algo_kwargs": replay}))), Sampler()
    run_training(session, [sampler])
    session.close()
    quarter = len(sampler.samples) // 4
    return summary(sampler.samples[quarter : 2 * quarter]), summary(sampler.samples[-quarter:])


def summary(samples: list[Sample]) -> Level:
    first, last = samples[0], samples[-1]
    speed = (last.step - first.step) / (last.cpu_seconds - first.cpu_seconds)
    return Level(speed, statistics.median(s.megabytes for s in samples), max(s.descriptors for s in samples))


def is_level(early: Level, late: Level) -> bool:
    return (
        late.megabytes <= MORE_MEMORY * early.megabytes
        and late.descriptors <= early.descriptors
        and late.steps_per_cpu_second >= LESS_SPEED * early.steps_per_cpu_second
    )


def line(preset: str, steps: int, early: Level, late: Level) -> str:
    columns = (
        f"{early.megabytes:,.0f} → {late.megabytes:,.0f}",
        f"{early.descriptors} → {late.descriptors}",
        f"{early.steps_per_cpu_second:,.0f} → {late.steps_per_cpu_second:,.0f}",
        "level" if is_level(early, late) else "NOT LEVEL",
    )
    return f"| {preset} | {steps:,} | {' | '.join(columns)} |"


def report(lines: list[str]) -> str:
    head = ["| run | steps | memory, MiB | descriptors | steps per CPU second | |", "|---|---|---|---|---|---|"]
    return "\n".join([f"{date.today()}, second quarter → last quarter:", "", *head, *lines, "", "Again: `make soak`"])


if __name__ == "__main__":
    sys.exit(main())
