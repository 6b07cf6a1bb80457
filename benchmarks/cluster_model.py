"""How throughput should grow with workers, from costs measured here: `python -m benchmarks.cluster_model`.

Assumptions: every worker and the learner have a core each; all workers are equally fast; the learner takes fragments
one after the other and pays for their transfer; the network costs what the object store of one machine does.
"""

from __future__ import annotations

import argparse
import heapq
import os
import time
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.compare_sb3 import ROOT, cpu_model, write_section
from rl_training.data.fragments import side_by_side, to_fragment
from rl_training.distributed.connection import connect, ray
from rl_training.distributed.worker import from_wire, to_wire
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.collector import PolicySnapshot
from rl_training.runtime.session import Session

PAGE = ROOT / "docs" / "cluster.md"
WORKERS = (1, 2, 4, 8, 16, 32)
ENVS_OF_A_WORKER = 4
SLOW_STEP_SECONDS = 0.001
SIMULATED_SECONDS = 20.0


class Costs(NamedTuple):
    """Seconds, with the environments of one worker; those of the fragment are of all its rows."""

    step: float  # of one environment
    inference: float  # of one row of environments
    update: float  # all passes over one fragment
    transfer: float  # a fragment in, a snapshot out
    rows: int

    @property
    def collection(self) -> float:
        return self.rows * (self.step * ENVS_OF_A_WORKER + self.inference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--no-page", action="store_true", help="print only")
    args = parser.parse_args()
    text = report({algo: measured(algo) for algo in ("impala", "appo")})
    print(text)
    if not args.no_page:
        write_section(PAGE, "model:cluster", text)


def measured(algo: str) -> Costs:
    own = {"num_envs": ENVS_OF_A_WORKER, "backend": "sync", "output_dir": str(Path.cwd()), "threads": 1}
    with closing(Session(make_config(merge(load_preset(f"{algo}/cartpole"), own)))) as session:
        collector: Any = session.collector
        rows = session.learner.rollout_steps
        rollout = collector.collect(rows)
        connect(None)
        actions = rollout.actions[0].numpy()
        step = seconds(lambda: collector.envs.step(actions)) / ENVS_OF_A_WORKER
        collection = seconds(lambda: collector.collect(rows))
        update = seconds(lambda: list(session.learner.learn(rollout)), repeats=50)
        snapshot = PolicySnapshot(0, weights=session.policy.state_dict())

        def transfer() -> None:
            side_by_side([ray.get(ray.put(to_fragment(rollout)))])
            from_wire(ray.get(ray.put(to_wire(snapshot))))

        inference = max(collection / rows - step * ENVS_OF_A_WORKER, 0.0)
        return Costs(step, inference, update, seconds(transfer, repeats=100), rows)


def seconds(work: Callable[[], Any], repeats: int = 200) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def sync_speed(costs: Costs, workers: int) -> float:
    """All collect at once; then the learner takes in every fragment and updates on all rows."""
    iteration = costs.collection + workers * (costs.transfer + costs.update)
    return workers * costs.rows * ENVS_OF_A_WORKER / iteration


def async_speed(costs: Costs, workers: int) -> float:
    """Events: the learner takes the fragment that was ready first; its worker goes on while it learns."""
    ready = [costs.collection] * workers
    now, fragments = 0.0, 0
    while now < SIMULATED_SECONDS:
        now = max(now, heapq.heappop(ready)) + costs.transfer
        heapq.heappush(ready, now + costs.collection)
        now += costs.update
        fragments += 1
    return fragments * costs.rows * ENVS_OF_A_WORKER / now


def report(by_algo: dict[str, Costs]) -> str:
    lines = [
        f"{date.today()}, {os.cpu_count()} cores of {cpu_model()}, {ENVS_OF_A_WORKER} environments to a worker; "
        "medians, measured beside other work on the machine.",
        "",
        "| preset | step | inference of a row | update on a fragment | transfer of a fragment and a snapshot |",
        "|---|---|---|---|---|",
    ]
    for algo, costs in by_algo.items():
        cells = " | ".join(f"{1e6 * value:,.0f} µs" for value in costs[:4])
        lines.append(f"| {algo}/cartpole | {cells} |")
    lines += ["", f"| expected steps/s with workers | {' | '.join(map(str, WORKERS))} |", "|---" * 7 + "|"]
    for algo, costs in by_algo.items():
        for name, case in (("CartPole", costs), ("a step of 1 ms", costs._replace(step=SLOW_STEP_SECONDS))):
            for mode, speed in (("sync", sync_speed), ("async", async_speed)):
                cells = " | ".join(f"{speed(case, workers):,.0f}" for workers in WORKERS)
                lines.append(f"| {algo}, {name}, {mode} | {cells} |")
    lines += ["", "Again: `python -m benchmarks.cluster_model`"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
