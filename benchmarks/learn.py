"""`make learn`: trains presets over several seeds and compares the worst with its bar.

Every finished seed is kept in `benchmarks/results/<algo>/<preset>.json`, so that a stopped call goes on where it was;
`--again` forgets them. The table in `docs/benchmarks.md` is made from these files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.compare_sb3 import write_section
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import SCORES, load_preset
from rl_training.experiment.runs import file_name
from rl_training.tools.plot import plot_runs

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "runs" / "learn"
SEEDS = range(5)

# preset → the mean greedy return that the worst of the seeds has to reach, of each task where there are several.
BARS: dict[str, float | dict[str, float]] = {
    "ppo/cartpole": 490,
    "ppo/acrobot": -95,
    "ppo/pendulum": -250,
    "ppo/lunarlander": 200,
    "ppo/mountaincar": -130,
    "a2c/cartpole": 475,
    "trpo/cartpole": 475,
    "trpo/pendulum": -250,
    "recurrent_ppo/cartpole_masked": 475,
    "impala/cartpole": 475,
    "appo/cartpole": 475,
    "ppg/cartpole": 475,
    "muzero/cartpole": 450,
    "gumbel_muzero/cartpole": 475,
    "efficientzero/cartpole": 450,
    "scalezero/cartpole": 400,
    "scalezero/classic": {"CartPole-v1": 350, "Acrobot-v1": -130},
    "gail/cartpole": 475,
    "gail/pendulum": -202,  # within 15 % of the expert, who returns −175.7 over 100 episodes
    "dreamer/cartpole": 450,
    "dreamer/pendulum": -350,
}
_writing = threading.Lock()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="presets or algorithms; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time [2]")
    parser.add_argument("--again", action="store_true", help="forget earlier results of the chosen presets")
    args = parser.parse_args()
    chosen = [p for p in BARS if not args.presets or p in args.presets or p.partition("/")[0] in args.presets]
    if args.again:
        for preset in chosen:
            result_path(preset).unlink(missing_ok=True)
    missing = [(preset, seed) for preset in chosen for seed in SEEDS if str(seed) not in load(preset)]
    with ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda work: train(*work), missing):
            print(line, flush=True)
    for preset in chosen:
        draw(preset)
    write_table()
    SCORES.write_text(json.dumps(scores(), indent=1) + "\n")
    missed = [p for p in chosen if any(worst(load(p), metric) < bar for metric, bar in bars(p).items())]
    print(f"{len(chosen) - len(missed)} presets reach their bar" + (f", missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def train(preset: str, seed: int) -> str:
    """One seed in a process of its own, with one thread and its CPU time measured."""
    flags = ["--seed", str(seed), "--threads", "1", "--output-dir", str(RUNS), "--display", "none"]
    command = [sys.executable, "-m", "rl_training", "train", "--config", preset, *flags, "--json"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    answer = json.loads(output)
    result = {
        "return_mean": round(answer["return_mean"], 2),
        "return_min": round(answer["return_min"], 2),
        "steps": answer["global_step"],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
        **{name: round(mean, 2) for name, mean in answer.items() if name.startswith("return_mean/")},
    }
    with _writing:
        path = result_path(preset)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(load(preset) | {str(seed): result}, indent=2, sort_keys=True) + "\n")
    return f"{preset} seed {seed}: {result['return_mean']} in {result['cpu_seconds']} CPU s"


def draw(preset: str) -> None:
    """The learning curves of all seeds, if their runs are still there."""
    config = make_config(load_preset(preset))
    runs = RUNS / config.algo / file_name(config.env_spec().name)
    if runs.is_dir():
        curve_path(preset).parent.mkdir(parents=True, exist_ok=True)
        plot_runs([runs], curve_path(preset), title=preset)


def curve_path(preset: str) -> Path:
    return ROOT / "docs" / "images" / "curves" / f"{preset.replace('/', '_')}.svg"


def result_path(preset: str) -> Path:
    return RESULTS / f"{preset}.json"


def load(preset: str) -> dict[str, Any]:
    return json.loads(result_path(preset).read_text()) if result_path(preset).exists() else {}


def bars(preset: str) -> dict[str, float]:
    """The bar of each metric that has one."""
    bar = BARS[preset]
    return {f"return_mean/{task}": own for task, own in bar.items()} if isinstance(bar, dict) else {"return_mean": bar}


def worst(results: dict[str, Any], metric: str) -> float:
    return min((result[metric] for result in results.values()), default=float("-inf"))


def scores() -> dict[str, dict[str, float]]:
    """What `rl-training list presets` tells of every preset that was measured."""
    return {preset: _score(load(preset)) for preset in BARS if load(preset)}


def _score(results: dict[str, Any]) -> dict[str, float]:
    returns = [result["return_mean"] for result in results.values()]
    return {
        "return_mean": round(sum(returns) / len(returns), 2),
        "worst_seed": min(returns),
        "seeds": len(returns),
        "steps": max(result["steps"] for result in results.values()),
        "cpu_seconds": round(sum(result["cpu_seconds"] for result in results.values()) / len(returns)),
    }


def write_table() -> None:
    lines = [
        "| preset | steps | seeds | mean | worst seed | bar | CPU s a seed | command |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in BARS:
        results = load(preset)
        for metric, bar in bars(preset).items() if results else ():
            mean, cpu = (sum(r[key] for r in results.values()) / len(results) for key in (metric, "cpu_seconds"))
            steps, low = max(r["steps"] for r in results.values()), worst(results, metric)
            name = " ".join([f"`{preset}`", *metric.split("/")[1:]])
            lines.append(
                f"| {name} | {steps:,} | {len(results)} | {mean:.1f} | {low:.1f} | {bar:g} | {cpu:.0f} "
                f"| `rl-training train --config {preset} --seeds 0-4` |"
            )
    curves = [curve_path(preset) for preset in BARS if curve_path(preset).exists()]
    lines += ["", *(f"![{path.stem}]({path.relative_to(ROOT / 'docs')})" for path in curves)]
    write_section(ROOT / "docs" / "benchmarks.md", "learn", "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
