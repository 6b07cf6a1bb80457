"""`train --seeds`: one run for each seed, one after the other or side by side, and what they reached together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.display import Mode, open_display
from rl_training.runtime.evaluation import score_text
from rl_training.runtime.manager import train_run
from rl_training.runtime.side_by_side import train_side_by_side
from rl_training.runtime.workflows import TrainResult
from rl_training.tools.statistics import interval_reach


def parse_seeds(text: str) -> list[int]:
    """`0-4` or `0,3,7`, each seed once."""
    bounds = re.fullmatch(r"(\d+)-(\d+)", text)
    if bounds:
        seeds = list(range(int(bounds[1]), int(bounds[2]) + 1))
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = [int(part) for part in text.split(",")]
    else:
        raise ConfigError(f"--seeds takes 0-4 or 0,3,7, got {text!r}")
    if not seeds:
        raise ConfigError(f"--seeds {text}: the first is greater than the last; write {bounds[2]}-{bounds[1]}")  # type: ignore[index]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds {text}: a seed stands there twice, and would give the same run twice")
    return seeds


def train_seeds(config: TrainConfig, seeds: Sequence[int], *, jobs: int, display: Mode) -> list[TrainResult]:
    """The results in the order of the seeds; each is told on stderr when it is there."""
    results: dict[int, TrainResult] = {}
    configs = [config.changed(seed=seed) for seed in seeds]
    for index, result in _results(configs, jobs=jobs, display=display):
        results[index] = result
        print(f"seed {seeds[index]}: {score_text(result.summary())}, run: {result.run_dir}", file=sys.stderr)
    return [results[index] for index in range(len(seeds))]


def _results(configs: list[TrainConfig], *, jobs: int, display: Mode) -> Iterator[tuple[int, TrainResult]]:
    if configs[0].backend == "ray":
        from rl_training.distributed.runs import train_in_parallel

        yield from enumerate(train_in_parallel(configs))
    elif jobs == 1:
        yield from ((index, train_run(config, display=display)) for index, config in enumerate(configs))
    else:
        first = configs[0]
        title = f"{first.algo} on {first.env_id}, {len(configs)} seeds, {jobs} at a time"
        with open_display(len(configs) * first.total_timesteps, title, mode=display) as shown:
            told: dict[int, tuple[int, float | None]] = {}

            def tell(index: int, row: dict[str, Any], step: int) -> None:
                _, before = told.get(index, (0, None))
                told[index] = (step, row.get("return_mean", before))
                returns = {f"return_mean/seed {configs[i].seed}": mean for i, (_, mean) in sorted(told.items())}
                shown.update(returns, sum(done for done, _ in told.values()))

            yield from train_side_by_side(configs, jobs=jobs, tell=tell)


def aggregate(results: Sequence[TrainResult]) -> dict[str, Any]:
    """Over the seeds: mean, deviation, the 95 % interval of the mean (Student's), and the worst."""
    returns = np.array([r.evaluation.return_mean for r in results if r.evaluation is not None])
    if len(returns) < 2:
        return {"seeds": len(results)}
    deviation = float(returns.std(ddof=1))
    reach = float(interval_reach(deviation, len(returns)))
    mean = float(returns.mean())
    return {
        "seeds": len(results),
        "return_mean": mean,
        "return_std": deviation,
        "return_interval": [mean - reach, mean + reach],
        "return_worst": float(returns.min()),
    }


def aggregate_text(found: dict[str, Any]) -> str:
    if "return_mean" not in found:
        return f"{found['seeds']} seeds; too few were evaluated for a mean"
    low, high = found["return_interval"]
    return (
        f"{found['seeds']} seeds: return {found['return_mean']:.1f} ± {found['return_std']:.1f}, "
        f"95% interval of the mean {low:.1f} to {high:.1f}, worst seed {found['return_worst']:.1f}"
    )
