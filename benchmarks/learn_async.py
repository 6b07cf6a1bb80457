"""`make learn-async`: what IMPALA and APPO reach with asynchronous workers, beside the same presets in one process.

Every finished seed is kept in `benchmarks/results/async/<algo>/<preset>.json`, so that a stopped call goes on where it
was. The table in `docs/benchmarks.md` is made from these files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.compare_sb3 import write_section
from benchmarks.learn import (
    ON_MEAN,
    RESULTS,
    ROOT,
    RUNS,
    is_reached,
    keep,
    load,
    mean_over_seeds,
    measured,
    read,
    training,
)
from rl_training.experiment.presets import load_preset

TASKS = ("hopper", "minigrid_doorkey", "minatar_breakout")
PRESETS = tuple(f"{algo}/{task}" for task in TASKS for algo in ("impala", "appo"))
SEEDS = range(3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", metavar="preset", help=f"of {', '.join(PRESETS)}; default: all")
    chosen = parser.parse_args().presets or PRESETS
    if unknown := [preset for preset in chosen if preset not in PRESETS]:
        parser.error(f"unknown preset {', '.join(unknown)}; there are {', '.join(PRESETS)}")
    for seed in SEEDS:
        for preset in chosen:
            if str(seed) not in results(preset):
                command = [*training(preset, seed), *flags(preset), "--output-dir", str(RUNS / "async")]
                keep(path(preset), str(seed), result := measured(command))
                print(f"{preset} seed {seed}: {result['return_mean']} in {result['wall_seconds']} s", flush=True)
    write_section(ROOT / "docs" / "benchmarks.md", "learn_async", table())
    return 0 if all(reaches_its_bar(preset) for preset in chosen) else 1


def flags(preset: str) -> list[str]:
    """Two workers, each of which steps its environments as the preset does."""
    backend = load_preset(preset).get("backend", "auto")
    return ["--backend", "ray", "--workers", "2", "--ray-mode", "async", "--worker-backend", backend]


def path(preset: str) -> Path:
    return RESULTS / "async" / f"{preset}.json"


def results(preset: str) -> dict[str, Any]:
    return read(path(preset))


def reaches_its_bar(preset: str) -> bool:
    found = results(preset)
    return len(found) == len(SEEDS) and is_reached(preset, found)


def table() -> str:
    lines = ["| preset | seeds | mean | each seed | bar | in one process | command |", "|---|---|---|---|---|---|---|"]
    lines += [_row(preset, found) for preset in PRESETS if (found := results(preset))]
    return "\n".join([*lines, "", "Again: `make learn-async`"])


def _row(preset: str, found: dict[str, Any]) -> str:
    bar = ON_MEAN[preset]
    digits = 3 if bar.mean < 10 else 1
    numbers = [found[seed][bar.metric] for seed in sorted(found)]
    numbers += [mean_over_seeds(seeds, bar.metric) for seeds in (found, load(preset))]
    *each, mean, alone = (f"{number:,.{digits}f}" for number in numbers)
    command = f"`rl-training train {preset} {' '.join(flags(preset))} --seeds 0-{SEEDS[-1]}`"
    cells = [f"`{preset}`", len(found), mean, ", ".join(each), f"mean {bar.mean:g}", alone, command]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
