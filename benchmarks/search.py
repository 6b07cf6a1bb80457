"""`python -m benchmarks.search`: simulations per CPU second of the batched search, on one thread.

The network has latents and hidden layers of 128 and heads of 21 bins. Tree and network are also timed apart: the
network alone, on as many rows, and what is left is the tree. The matrix products tell how fast the core is today.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces

from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel, MuZeroOptions, RecurrentWeights
from rl_training.search import mlp
from rl_training.search.rules import Rule, gumbel, puct
from rl_training.search.search import Recurrent, Roots, search

RULES = {"puct": puct(), "gumbel": gumbel()}
SIZE, SUPPORT = 128, 10


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
    model = MuZeroModel(space, MuZeroOptions(latent_size=SIZE, hidden_size=SIZE, support_size=SUPPORT))
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.1)
    return model


def network_seconds(weights: RecurrentWeights, roots: int, actions: int, seconds: float) -> float:
    """Of one simulation of every root; the call from Python is spread over many."""
    rows = max(1, 256 // roots)
    latents = np.random.default_rng(0).random((roots, SIZE), dtype=np.float32)
    answers = [np.empty(shape, dtype=np.float32) for shape in ((roots, SIZE), (roots, actions), (roots,), (roots,))]
    chosen = np.zeros(roots, dtype=np.int64)
    return cpu_seconds(lambda: mlp.repeat_recurrent(rows, latents, chosen, weights, *answers), seconds) / rows


@torch.no_grad()
def measure(rule: Rule, actions: int, num_roots: int, simulations: int, seconds: float) -> tuple[float, float, float]:
    """(simulations per CPU second, share of the tree, simulations per CPU second with the network in torch)."""
    model = random_model(actions)
    latents, values, logits = model.initial(torch.rand(num_roots, 4))
    roots = Roots(latents, logits.numpy(), values.numpy())
    weights = model.planner()
    assert weights is not None

    def run(network: Recurrent | RecurrentWeights) -> object:
        return search(roots, network, rule=rule, num_simulations=simulations, discount=0.99)

    whole = cpu_seconds(lambda: run(weights), seconds)
    in_torch = cpu_seconds(lambda: run(model.recurrent), seconds)
    network = network_seconds(weights, num_roots, actions, seconds) * simulations
    work = num_roots * simulations
    return work / whole, 1.0 - network / whole, work / in_torch


def matmuls_per_second(seconds: float) -> float:
    """[64, 128] · [128, 128] in NumPy: what the core can do today."""
    a, b = (np.random.default_rng(0).random(shape, dtype=np.float32) for shape in ((64, 128), (128, 128)))
    return 1.0 / cpu_seconds(lambda: a @ b, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU seconds for each figure [0.5]")
    parser.add_argument("--roots", type=int, nargs="*", default=[1, 8, 64, 256])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"matmul [64, 128] x [128, 128]: {matmuls_per_second(args.seconds):,.0f} per CPU second\n")
    print("| rule | actions | roots | simulations | per CPU s | tree | network in torch, per CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name, rule in RULES.items():
        for actions in (2, 18):
            for roots in args.roots:
                for simulations in (25, 50):
                    rate, tree, in_torch = measure(rule, actions, roots, simulations, args.seconds)
                    work = f"{name} | {actions} | {roots} | {simulations}"
                    print(f"| {work} | {rate:,.0f} | {tree:.0%} | {in_torch:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
