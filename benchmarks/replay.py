"""What a draw from the prioritised replay costs, by its size: `python -m benchmarks.replay`.

A batch of 256 rows is drawn and their priorities are written, from replays of 10⁴, 10⁵ and 10⁶ rows; beside it, what
summing all priorities for every draw would cost. The figures go to a marked section of `docs/benchmarks.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.compare_sb3 import PAGE, write_section
from rl_training.data.priorities import Priorities

BATCH, REPEATS = 256, 200
SIZES = (10**4, 10**5, 10**6)


def main() -> None:
    lines = ["| rows | draw, µs | write, µs | a sum over all rows, µs |", "|---|---|---|---|"]
    for size in SIZES:
        lines.append(f"| {size:,} | " + " | ".join(f"{figure:,.0f}" for figure in measure(size)) + " |")
    text = "\n".join(lines)
    print(text)
    head = (
        f"A batch of {BATCH} rows; medians of {REPEATS} calls of CPU time on one core (`python -m benchmarks.replay`)."
    )
    write_section(PAGE, "bench:replay", f"{head}\n\n{text}")


def measure(size: int) -> tuple[float, float, float]:
    """A draw, the writing of its priorities, and a draw that sums over everything."""
    rng = np.random.default_rng(0)
    priorities = Priorities(size, alpha=0.6)
    priorities.set(np.arange(size), rng.random(size) + 0.1)
    slots, flat = rng.integers(size, size=BATCH), rng.random(size)
    return (
        microseconds(lambda: priorities.draw(BATCH, rng)),
        microseconds(lambda: priorities.set(slots, rng.random(BATCH))),
        microseconds(lambda: np.searchsorted((flat**0.6).cumsum(), rng.random(BATCH))),
    )


def microseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - began)
    return median(times) / 1000


if __name__ == "__main__":
    main()
