"""What each kernel gains in a whole run: `python -m benchmarks.kernels`.

A preset is trained in alternating rounds with all kernels, without the one in question, and without any. The figures
are medians over rounds of CPU time; they go to `benchmarks/results/kernels.json` and to `kernels/README.md`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import rl_training.kernels
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.kernels.table import Kernel, all_kernels, choose
from rl_training.replaceable import choosing
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session

README = Path(rl_training.kernels.__file__).parent / "README.md"
RESULTS = Path(__file__).parent / "results" / "kernels.json"
POLICY = ("ppo/cartpole", 16_384)
DREAMER = ("dreamer/cartpole", 2_000)
# The preset that shows a kernel, and how many steps of it.
SHOWN_BY: dict[str, tuple[str, int]] = {
    "envs.vector.step_together": POLICY,
    "models.actor_critic.ActorCritic.act": POLICY,
    "models.actor_critic.ActorCritic.evaluate_actions": POLICY,
    "models.actor_critic.ActorCritic.values": ("a2c/cartpole", 16_384),
    "models.actor_critic.ActorCritic.distribution": ("trpo/cartpole", 16_384),
    "algorithms.ppo.PPO.update": POLICY,
    "algorithms.a2c.A2C.update": ("a2c/cartpole", 16_384),
    "algorithms.appo.APPO.gradient_step": ("appo/cartpole", 16_384),
    "algorithms.impala.IMPALA.gradient_step": ("impala/cartpole", 16_384),
    "algorithms.trpo.TRPO.update_critic": ("trpo/cartpole", 16_384),
    "algorithms.trpo.TRPO.fisher_product": ("trpo/cartpole", 16_384),
    "algorithms.optimizer.FlatOptimizer.apply_gradient": POLICY,
    "models.normed.NormedActivation.forward": DREAMER,
    "models.rssm.RSSM.filtered": DREAMER,
    "models.rssm.gated": DREAMER,
    "ops.categorical.unimix": DREAMER,
    "algorithms.dqn.DQN.update": ("dqn/acrobot", 8_000),
    "models.q_network.QPolicy.act": ("dqn/acrobot", 4_000),
    "algorithms.sac.ActorThroughCritics.update_critics": ("sac/pendulum", 1_500),
    "algorithms.sac.ActorThroughCritics.update_policy": ("sac/pendulum", 1_500),
    "ops.losses.explained_variance": ("a2c/cartpole", 16_384),
    "ops.returns.gae": ("a2c/cartpole", 16_384),
    "search.search.simulate": ("gumbel_muzero/cartpole", 2_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("only", nargs="*", help="names of plain functions; default: all")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="alternating repeats [5]")
    args = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for kernel in all_kernels():
        if args.only and kernel.replaces not in args.only:
            continue
        found[kernel.replaces] = measure(kernel, *SHOWN_BY[kernel.replaces], rounds=args.rounds)
        print(kernel.replaces, found[kernel.replaces], flush=True)
        RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=2) + "\n")
    write_readme(found)


def measure(kernel: Kernel, preset: str, steps: int, *, rounds: int) -> dict[str, Any]:
    def without(plain: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return None if plain is kernel.plain else choose(plain, args)

    train(preset, steps, choose)  # compiles
    times: dict[str, list[float]] = {"all": [], "without": [], "none": []}
    for _ in range(rounds):
        for name, chooser in (("all", choose), ("without", without), ("none", None)):
            times[name].append(train(preset, steps, chooser))
    gain = median(a / b for a, b in zip(times["without"], times["all"], strict=True))
    total = median(a / b for a, b in zip(times["none"], times["all"], strict=True))
    return {"preset": preset, "steps": steps, "gain": round(gain, 3), "all_kernels": round(total, 3)}


def train(preset: str, steps: int, chooser: Any) -> float:
    """CPU seconds of a run's loop."""
    changes = {"total_timesteps": steps, "eval_episodes": 0, "eval_interval": None, "threads": 1, "kernels": "off"}
    session = Session(make_config(merge(load_preset(preset), changes)))
    session.kernels = lambda: choosing(chooser)  # type: ignore[method-assign]
    began = time.process_time()
    run_training(session)
    took = time.process_time() - began
    session.close()
    return took


TESTS = {
    "kernels.cartpole": "tests/test_kernels_cartpole.py",
    "kernels.optimizers": "tests/test_kernels_policies.py",
    "kernels.policies": "tests/test_kernels_policies.py, tests/test_compiled_nets.py",
    "kernels.updates": "tests/test_kernels_policies.py, tests/test_trpo_update.py",
    "kernels.critics": "tests/test_kernels_off_policy.py",
    "kernels.q_learning": "tests/test_kernels_off_policy.py",
    "kernels.returns": "tests/test_kernels_returns.py",
    "kernels.normed": "tests/test_dreamer_update.py",
    "kernels.rssm": "tests/test_dreamer_update.py",
    "kernels.stochastic": "tests/test_dreamer_update.py",
    "kernels.planning": "tests/test_search.py, tests/test_efficientzero_update.py, tests/test_scalezero_update.py",
}
HEAD = """# Kernels

The plain code of `ops`, `envs`, `models` and `algorithms` is the program; a kernel is the faster twin of one function
of it. Inside of a session whose config says `kernels: auto`, the default, a call goes to the kernel where its condition
holds, and to the plain function everywhere else; with `kernels: off` no kernel runs. A subclass, a user's own module
and any other type than those named here always take the plain path. Forward hooks on the modules of a policy that
kernels act for are not called: train with `kernels: off` to use them. Numbers are float32 vectors, or
whole numbers and truth values of any shape, which torsos flatten; they may be the parts of a mapping.

`replaceable` marks a plain function, `@replaces(plain, when=…, tolerance=…)` its kernel, `kernels/table.py` says in
which module to look. After 50 updates the weights of small runs with and without kernels agree to 2e-6 for every
algorithm (`tests/test_kernels.py` asks for 1e-4), where the algorithm itself does not magnify rounding: TRPO with a
damping of 1, Dreamer with Adam's ε of 0.1. With their presets' own settings TRPO differed by up to 5e-4 after 50
updates and Dreamer by up to 7e-2: conjugate gradients of few samples are ill-conditioned, and LaProp moves a weight
by the learning rate however small its gradient. EfficientZero's preset differed by 6e-3 on one seed of six, where
rounding decided a search. Written by `python -m benchmarks.kernels`, which measures the gains: CPU time of a run
without the kernel, the others at work, over that with it; in brackets, without any kernel.

| replaces | when | differs by at most | its test | gain in a whole run |
|---|---|---|---|---|
"""


def write_readme(measured: Mapping[str, Mapping[str, Any]]) -> None:
    README.write_text(HEAD + "\n".join(_line(kernel, measured) for kernel in all_kernels()) + "\n")


def _line(kernel: Kernel, measured: Mapping[str, Mapping[str, Any]]) -> str:
    tolerance = "0" if kernel.tolerance == 0.0 else f"{kernel.tolerance:.0e}"
    tests = TESTS[kernel.function.__module__.removeprefix("rl_training.")]
    figures = measured.get(kernel.replaces)
    gain = "not measured"
    if figures:
        gain = f"{figures['gain']:.2f}× ({figures['all_kernels']:.2f}×), `{figures['preset']}`"
    when = " ".join((inspect.getdoc(kernel.when) or "").split())
    return f"| `{kernel.replaces}` | {when} | {tolerance} | {tests} | {gain} |"


if __name__ == "__main__":
    main()
