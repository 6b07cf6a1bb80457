"""`python -m benchmarks.search`: simulations per CPU second of the batched search, on one thread, beside mctx.

The network has latents and hidden layers of 128 and heads of 21 bins. Tree and network are also timed apart: the
network alone, on as many rows, and what is left is the tree. The matrix products tell how fast the core is today.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib import metadata
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from benchmarks import mctx_peer
from benchmarks.compare_sb3 import PAGE, write_section
from rl_training.envs.types import Spaces
from rl_training.kernels import using
from rl_training.kernels.mlp_weights import RecurrentWeights
from rl_training.kernels.planning import mlp_weights, recurrent
from rl_training.kernels.tools.compiled import compiled
from rl_training.models.muzero import MuZeroModel
from rl_training.runtime.muzero_trainer import MuZeroLearner, MuZeroParams
from rl_training.search.rules import Rule, gumbel, puct
from rl_training.search.search import Roots, search

RULES = {"puct": puct(), "gumbel": gumbel()}
SIZE, SUPPORT = 128, 10
TREE_BAR = 0.3


def cpu_seconds(work: Callable[[], object], seconds: float, repeats: int = 3) -> float:
    """CPU seconds of one call, the best of a few averages."""
    work()
    started, calls = time.process_time(), 0
    while time.process_time() - started < seconds / repeats:
        work()
        calls += 1
    best = (time.process_time() - started) / calls
    for _ in range(repeats - 1):
        started = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - started) / calls)
    return best


def random_model(actions: int) -> MuZeroModel:
    torch.manual_seed(0)
    space = Spaces(spaces.Box(-1, 1, (4,)), spaces.Discrete(actions))
    params = MuZeroParams(latent_size=SIZE, hidden_size=SIZE, support_size=SUPPORT)
    model = MuZeroLearner.build_model(params, space)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.1)
    return model


@compiled
def repeat_recurrent(times, latents, actions, weights, following, logits, rewards, values):  # type: ignore[no-untyped-def]
    """The compiled network again and again."""
    for _ in range(times):
        recurrent(latents, actions, weights, None, following, logits, rewards, values)


def network_seconds(weights: RecurrentWeights, roots: int, actions: int, seconds: float) -> float:
    """Of one simulation of every root; the call from Python is spread over many."""
    rows = max(1, 256 // roots)
    latents = np.random.default_rng(0).random((roots, SIZE), dtype=np.float32)
    answers = [np.empty(shape, dtype=np.float32) for shape in ((roots, SIZE), (roots, actions), (roots,), (roots,))]
    chosen = np.zeros(roots, dtype=np.int64)
    return cpu_seconds(lambda: repeat_recurrent(rows, latents, chosen, weights, *answers), seconds) / rows


@torch.no_grad()
def measure(rule: Rule, actions: int, num_roots: int, simulations: int, seconds: float) -> tuple[float, float, float]:
    """(simulations per CPU second, share of the tree, simulations per CPU second with the network in torch)."""
    model = random_model(actions)
    latents, values, logits = model.initial(torch.rand(num_roots, 4))
    roots = Roots(latents, logits.numpy(), values.numpy())

    def run() -> object:
        return search(roots, model, rule=rule, num_simulations=simulations, discount=0.99)

    with using("auto"):
        whole = cpu_seconds(run, seconds)
    in_torch = cpu_seconds(run, seconds)
    network = network_seconds(mlp_weights(model).weights, num_roots, actions, seconds) * simulations
    work = num_roots * simulations
    return work / whole, 1.0 - network / whole, work / in_torch


def matmuls_per_second(seconds: float) -> float:
    """[64, 128] · [128, 128] in NumPy: what the core can do today."""
    a, b = (np.random.default_rng(0).random(shape, dtype=np.float32) for shape in ((64, 128), (128, 128)))
    return 1.0 / cpu_seconds(lambda: a @ b, seconds)


class Row(NamedTuple):
    rule: str
    actions: int
    roots: int
    simulations: int
    rate: float
    tree: float
    in_torch: float
    mctx: float

    @property
    def misses(self) -> list[str]:
        """The bars that it does not reach."""
        bars = {
            f"{self.bar:,} a CPU s": self.actions > 2 or self.rate >= self.bar,
            f"tree under {TREE_BAR:.0%}": self.actions > 2 or self.tree < TREE_BAR,
            "ahead of mctx": self.rate > self.mctx,
        }
        return [bar for bar, is_met in bars.items() if not is_met]

    @property
    def bar(self) -> int:
        return 150_000 if self.roots == 1 else 250_000

    def cells(self) -> str:
        figures = f"{self.rate:,.0f} | {self.tree:.0%} | {self.in_torch:,.0f} | {self.mctx:,.0f}"
        return f"| {self.rule} | {self.actions} | {self.roots} | {self.simulations} | {figures} | {self.verdict} |"

    @property
    def verdict(self) -> str:
        return "missed: " + ", ".join(self.misses) if self.misses else "met"


def measured_row(rule: str, actions: int, roots: int, simulations: int, seconds: float) -> Row:
    rates = measure(RULES[rule], actions, roots, simulations, seconds)
    peer = mctx_peer.searcher(rule, actions, roots, simulations, SIZE, 2 * SUPPORT + 1)
    return Row(rule, actions, roots, simulations, *rates, roots * simulations / cpu_seconds(peer, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU seconds for each figure [0.5]")
    parser.add_argument("--roots", type=int, nargs="*", default=[1, 8, 64, 256])
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"{date.today()}, one thread, latents and hidden layers of {SIZE}, heads of {2 * SUPPORT + 1} bins, in "
        f"the same process; mctx {metadata.version('mctx')} on jax {metadata.version('jax')}. The core does "
        f"{matmuls_per_second(args.seconds):,.0f} products [64, 128] · [128, 128] a CPU second. The bars on speed "
        "and on the tree's share are for 2 actions.",
        "",
        "| rule | actions | roots | simulations | per CPU s | tree | network in torch | mctx | bars |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for rule, actions, roots, simulations in product(RULES, (2, 18), args.roots, (25, 50)):
        rows.append(measured_row(rule, actions, roots, simulations, args.seconds))
        print(rows[-1].cells(), flush=True)
    text = "\n".join([*lines, *(row.cells() for row in rows), "", "Again: `python -m benchmarks.search`"])
    write_section(PAGE, "bench:search", text)
    return 1 if any(row.misses for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
