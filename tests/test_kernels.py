"""The seam between plain code and kernels: what runs is what the config says, and both compute the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import pytest
import torch

from conformance import small_config
from rl_training.experiment.registry import REGISTRY
from rl_training.kernels import using
from rl_training.kernels.table import KERNELS, Kernel, all_kernels
from rl_training.kernels.tools.compiling import SENTENCE, compiling_begins, told_of_compiling
from rl_training.replaceable import replaceable
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session

SOURCE = Path(__file__).parent.parent / "src" / "rl_training"
ACTOR, CRITIC, SCORER = (f"models.actor_critic.ActorCritic.{name}" for name in ("act", "values", "evaluate_actions"))
POLICY = {ACTOR, CRITIC, SCORER}
OPTIMIZER = "algorithms.optimizer.FlatOptimizer.apply_gradient"  # its first step, which makes the state, is torch's own
WORLD_MODEL = {
    "models.normed.NormedActivation.forward",
    "models.rssm.RSSM.filtered",
    "models.rssm.gated",
    "ops.categorical.unimix",
}
SEARCH = {"search.search.simulate"}
CARTPOLE = "envs.vector.step_together"
RETURNS = {"ops.losses.explained_variance", "ops.returns.gae"}
# The plain functions that a run of the algorithm's small preset calls, and that kernels take over.
EXPECTED: dict[str, set[str]] = {
    "ppo": {*POLICY, *RETURNS, CARTPOLE, "algorithms.ppo.PPO.update"},
    "a2c": {*RETURNS, ACTOR, CRITIC, "algorithms.a2c.A2C.update"},
    "trpo": {*POLICY, *RETURNS, "models.actor_critic.ActorCritic.distribution"}
    | {f"algorithms.trpo.TRPO.{name}" for name in ("update_critic", "fisher_product")},
    "impala": {*POLICY, "algorithms.impala.IMPALA.gradient_step"},
    "appo": {*POLICY, "algorithms.appo.APPO.gradient_step"},
    "gail": {*POLICY, *RETURNS, "algorithms.ppo.PPO.update"},
    "dreamer": WORLD_MODEL,
    "muzero": SEARCH,
    "gumbel_muzero": SEARCH,
    "efficientzero": SEARCH,
    "scalezero": SEARCH,
    "recurrent_ppo": RETURNS,
    "dqn": {"models.q_network.QPolicy.act", "algorithms.dqn.DQN.update"},
    "sac": {f"algorithms.sac.ActorThroughCritics.update_{part}" for part in ("critics", "policy")},
    "td3": {f"algorithms.sac.ActorThroughCritics.update_{part}" for part in ("critics", "policy")},
    "ppg": RETURNS,
}


# Their kernels have no gradient: where one is wanted (GAIL's cloning, TRPO's surrogate), the plain function runs.
THROUGH_AUTOGRAD = {f"models.actor_critic.ActorCritic.{name}" for name in ("evaluate_actions", "distribution")}


class Ran:
    """How often each plain function and each kernel was called, by the name of the plain function."""

    def __init__(self) -> None:
        self.plain: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    counts = Ran()

    def counting(function: Any, counter: Counter[str], name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counter[name] += 1
            return function(*args, **kwargs)

        return call

    for kernel in all_kernels():
        name, plain = kernel.replaces, kernel.plain
        monkeypatch.setattr(plain, "plain", counting(plain.plain, counts.plain, name))  # type: ignore[attr-defined]
        twin = Kernel(plain, counting(kernel.function, counts.kernels, name), kernel.when, kernel.tolerance)
        monkeypatch.setitem(KERNELS, plain, twin)
    return counts


def train(algo: str, mode: str, tmp_path: Path, **changes: Any) -> None:
    # APPO's target network, which conformance gives it, takes the plain path.
    plain = {"target_update_interval": None} if algo == "appo" else {}
    session = Session(small_config(algo, tmp_path, kernels=mode, eval_episodes=0, algo_kwargs=plain, **changes))
    run_training(session)
    session.close()


@pytest.mark.parametrize("algo", list(REGISTRY))
def test_off_runs_no_kernel(algo: str, tmp_path: Path, ran: Ran) -> None:
    train(algo, "off", tmp_path)
    assert not ran.kernels
    assert ran.plain.keys() >= EXPECTED[algo] | ({OPTIMIZER} if algo != "dreamer" else set())


@pytest.mark.parametrize("algo", [algo for algo, names in EXPECTED.items() if names])
def test_auto_runs_the_kernels_and_not_their_plain_twins(algo: str, tmp_path: Path, ran: Ran) -> None:
    train(algo, "auto", tmp_path)
    assert ran.kernels.keys() >= EXPECTED[algo]
    assert not (ran.plain.keys() & EXPECTED[algo]) - THROUGH_AUTOGRAD
    if algo != "dreamer":  # whose optimizer clips in another way
        assert ran.plain[OPTIMIZER] <= 3  # the first step of each optimizer


def test_every_kernel_is_expected_of_an_algorithm() -> None:
    assert {kernel.replaces for kernel in all_kernels()} == {OPTIMIZER}.union(*EXPECTED.values())


def test_the_readme_lists_every_kernel_with_its_gain() -> None:
    lines = [line for line in (SOURCE / "kernels" / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [kernel.replaces for kernel in all_kernels()]
    assert not [line for line in lines if "not measured" in line], "run: python -m benchmarks.kernels"


class Enough(Exception):
    pass


class StopAfter(Callback):
    """Ends training right after so many updates."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def on_update(self, session: Session, result: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Enough


# Where rounding is magnified by the algorithm itself. Few samples make conjugate gradients ill-conditioned; Dreamer's
# own optimizer moves weights by the learning rate however small their gradients, and each of its random states is a
# threshold that rounding may cross.
GENTLE: dict[str, dict[str, Any]] = {
    "trpo": {"cg_damping": 1.0},
    "dreamer": {"optimizer": "adam", "optimizer_eps": 0.1, "horizon": 2, "batch_size": 2, "train_ratio": 0.5},
}


def weights_after(algo: str, mode: str, tmp_path: Path, *, updates: int) -> torch.Tensor:
    changes = {"kernels": mode, "eval_episodes": 0, "total_timesteps": 10**6, "seed": 4}
    session = Session(small_config(algo, tmp_path, algo_kwargs=GENTLE.get(algo), **changes))
    with pytest.raises(Enough):
        run_training(session, [StopAfter(updates)])
    session.close()
    return torch.cat([p.detach().flatten() for p in session.policy.parameters()])


@pytest.mark.parametrize("algo", [algo for algo, names in EXPECTED.items() if names])
def test_fifty_updates_end_at_the_same_weights(algo: str, tmp_path: Path) -> None:
    ours, plain = (weights_after(algo, mode, tmp_path, updates=50) for mode in ("auto", "off"))
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-4)


def test_without_a_session_the_plain_code_runs() -> None:
    called = []

    @replaceable
    def plain(x: int) -> int:
        called.append(x)
        return x

    assert plain(1) == 1
    with using("off"):
        assert plain(2) == 2
    assert called == [1, 2]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_numba_and_derivatives_are_in_the_room(path: Path) -> None:
    """The compiled tree of the search uses the room's tools."""
    place = path.relative_to(SOURCE).as_posix()
    text = path.read_text()
    if place.startswith("kernels/"):
        return
    assert "import numba" not in text
    assert "from numba" not in text
    assert "autograd.Function" not in text
    assert ("kernels.tools" in text) <= place.startswith("search/")


EDITED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from rl_training.kernels.scalars import expected_scalars
scalars = np.zeros(1, dtype=np.float32)
expected_scalars(np.array([[0.0, 0.0, 1.0]], dtype=np.float32), scalars)
print(scalars[0], sum(expected_scalars.stats.cache_hits.values()))
"""


def test_a_change_in_an_inlined_file_is_compiled_anew(tmp_path: Path) -> None:
    """Numba's own stamp is of the function's file alone: it would answer with what the old code computed."""
    copy = tmp_path / "src" / "rl_training"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "assets"))

    def run() -> tuple[float, int]:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
        command = [sys.executable, "-c", EDITED, str(copy.parent)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        value, hits = done.stdout.split()
        return float(value), int(hits)

    first, again = run(), run()
    assert again == (first[0], 1)
    elementary = copy / "kernels" / "tools" / "elementary.py"
    plain, edited = "(fraction + ONE)", "(fraction + TWO)"
    assert plain in elementary.read_text()
    elementary.write_text(elementary.read_text().replace(plain, edited))
    changed = run()
    assert changed[1] == 0
    assert changed[0] != first[0]


def test_a_run_says_once_that_it_waits_for_the_compiler() -> None:
    def plus_one(x: float) -> float:
        return x + 1

    import_module("rl_training.kernels.tools.compiled")  # it listens to numba
    plus_one.__module__ = "rl_training.somewhere"
    told: list[str] = []
    with told_of_compiling(told.append):
        assert numba.njit(plus_one)(1.0) == 2
        assert numba.njit(plus_one)(1.0) == 2
    assert told == [SENTENCE]
    with told_of_compiling(told.append):
        pass
    compiling_begins()
    assert told == [SENTENCE]
