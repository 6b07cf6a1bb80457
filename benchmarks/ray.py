"""Two asynchronous workers against the local backend where a step takes 1 ms: `python -m benchmarks.ray`.

Then CartPole itself, for the score. The figures go to a marked section of `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import date
from statistics import median
from typing import Any

import gymnasium as gym

from benchmarks.compare_sb3 import PAGE, cpu_model, write_section
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.manager import train_run
from rl_training.runtime.workflows import TrainResult

ALGORITHMS = ("impala", "appo")
STEP_SECONDS = 0.001
STEPS = 12_000
RATIO_BAR, SCORE_BAR = 1.6, 475.0
BACKENDS: dict[str, dict[str, Any]] = {
    "local": {"backend": "sync"},
    "async": {"backend": "ray", "worker_backend": "sync", "workers": 2, "ray_mode": "async"},
}


class SlowStep(gym.Wrapper):
    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS)
        return super().step(action)


def slow_cartpole() -> gym.Env:
    return SlowStep(gym.make("CartPole-v1"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="alternating repeats [3]")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs for the score [3]")
    parser.add_argument("--no-page", action="store_true", help="print only")
    args = parser.parse_args()
    speeds = {algo: [compared(algo) for _ in range(args.rounds)] for algo in ALGORITHMS}
    scores = {algo: [trained(algo, "async", seed=seed) for seed in range(args.seeds)] for algo in ALGORITHMS}
    text = report(speeds, scores)
    print(text)
    if not args.no_page:
        write_section(PAGE, "bench:ray", text)
    return 0 if all(passes(speeds[algo], scores[algo]) for algo in ALGORITHMS) else 1


def trained(algo: str, backend: str, **changes: Any) -> TrainResult:
    """The preset on the backend, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"output_dir": folder, "threads": 1, **BACKENDS[backend], **changes}
        return train_run(make_config(merge(load_preset(f"{algo}/cartpole"), own)))


def compared(algo: str) -> dict[str, dict[str, float]]:
    """The last row of metrics by backend: one round."""
    slow = {"env_id": "benchmarks.ray:slow_cartpole", "total_timesteps": STEPS, "eval_episodes": 0}
    rows = {backend: dict(trained(algo, backend, **slow).metrics) for backend in BACKENDS}
    print(f"{algo}: " + ", ".join(f"{name} {speed(row):,.0f} steps/s" for name, row in rows.items()), file=sys.stderr)
    return rows


def speed(row: dict[str, float]) -> float:
    return row["global_step"] / row["seconds"]


def ratio(rounds: list[dict[str, dict[str, float]]]) -> float:
    return median(speed(rows["async"]) / speed(rows["local"]) for rows in rounds)


def passes(rounds: list[dict[str, dict[str, float]]], scores: list[TrainResult]) -> bool:
    lags = all(rows["async"]["policy_lag"] > 0 for rows in rounds)
    return lags and ratio(rounds) >= RATIO_BAR and median(mean_return(score) for score in scores) >= SCORE_BAR


def mean_return(result: TrainResult) -> float:
    assert result.evaluation is not None
    return result.evaluation.return_mean


def report(speeds: dict[str, Any], scores: dict[str, list[TrainResult]]) -> str:
    lines = [
        f"{date.today()}, {os.cpu_count()} cores of {cpu_model()}; each step of CartPole sleeps 1 ms, {STEPS:,} steps, "
        f"two asynchronous workers on Ray against the local backend, medians of {len(speeds['impala'])} alternating "
        "rounds. Overlap is the share of the learner's time in which a worker collected. The score is CartPole-v1 "
        f"itself with the preset's budget on the same two workers, greedy, for seeds 0 to {len(scores['impala']) - 1}.",
        "",
        "| algorithm | local steps/s | async steps/s | ratio | bar | lag | overlap | score | bar |",
        "|---|---|---|---|---|---|---|---|---|",
        *(table_row(algo, speeds[algo], scores[algo]) for algo in ALGORITHMS),
        "",
        "Again: `python -m benchmarks.ray`",
    ]
    return "\n".join(lines)


def table_row(algo: str, rounds: list[dict[str, dict[str, float]]], scores: list[TrainResult]) -> str:
    returns = [mean_return(score) for score in scores]
    cells = [
        algo,
        f"{median(speed(rows['local']) for rows in rounds):,.0f}",
        f"{median(speed(rows['async']) for rows in rounds):,.0f}",
        f"{ratio(rounds):.2f}",
        f"{'met' if ratio(rounds) >= RATIO_BAR else 'missed'}: {RATIO_BAR:g}",
        f"{median(rows['async']['policy_lag'] for rows in rounds):.2f}",
        f"{median(rows['async']['overlap'] for rows in rounds):.0%}",
        ", ".join(f"{value:.1f}" for value in returns),
        f"{'met' if median(returns) >= SCORE_BAR else 'missed'}: {SCORE_BAR:g}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
