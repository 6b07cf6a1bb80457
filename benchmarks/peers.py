"""The peers: each does the family's work and says how many steps took how long, after a warm-up."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.families import Family

NEVER = 10**12


class Measurement(NamedTuple):
    steps: int
    cpu_seconds: float
    wall_seconds: float


class Stopwatch:
    """Told at the same moment of every iteration, it times the iterations after the warm-up."""

    def __init__(self, warmup: int, timed: int) -> None:
        self.first, self.last = warmup, warmup + timed
        self.iteration = -1
        self.marks: dict[int, tuple[int, float, float]] = {}

    def tick(self, steps: int) -> None:
        self.iteration += 1
        if self.iteration in (self.first, self.last):
            self.marks[self.iteration] = (steps, time.process_time(), time.perf_counter())

    @property
    def ended(self) -> bool:
        return self.iteration >= self.last

    def measurement(self) -> Measurement:
        pairs = zip(self.marks[self.first], self.marks[self.last], strict=True)
        return Measurement(*(after - before for before, after in pairs))  # type: ignore[arg-type]


def ours(family: Family, envs: int, backend: str) -> Measurement:
    """`train_run` with its loggers; nothing is evaluated or saved while the clock runs."""
    from rl_training.experiment.config import make_config
    from rl_training.runtime.callbacks import Callback
    from rl_training.runtime.manager import train_run

    watch = Stopwatch(family.warmup_iterations, family.iterations(envs))

    class Watch(Callback):
        seen = -1

        def on_update(self, session: Any, result: Any) -> None:
            if session.progress.iterations != self.seen:
                self.seen = session.progress.iterations
                watch.tick(session.progress.global_step)
                if watch.ended:
                    session.request_stop("measured")

    with tempfile.TemporaryDirectory() as folder:
        train_run(make_config(our_config(family, envs, backend, folder)), callbacks=[Watch()])
    return watch.measurement()


def our_config(family: Family, envs: int, backend: str, folder: str) -> dict[str, Any]:
    return {
        "algo": family.algo,
        "env_id": family.env_id,
        "env_kwargs": dict(family.env_kwargs),
        "num_envs": envs,
        "backend": backend,
        "threads": 1,
        "device": "cpu",
        "total_timesteps": NEVER,
        "checkpoint_interval": NEVER,
        "eval_episodes": 0,
        "output_dir": folder,
        "algo_kwargs": dict(family.ours(envs)),
    }


def sb3(family: Family, envs: int, _backend: str) -> Measurement:
    """`learn` on a DummyVecEnv, as its documentation does it."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    vector = make_vec_env(family.env_id, envs)
    return _learned_by_sb3(family, envs, VecNormalize(vector) if family.normalizes else vector)


def sb3_atari(family: Family, envs: int, _backend: str) -> Measurement:
    import ale_py
    import gymnasium as gym
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    # The wrappers skip frames; the environment itself would, too.
    vector = make_atari_env(family.env_id, envs, env_kwargs={**family.env_kwargs, "frameskip": 1})
    return _learned_by_sb3(family, envs, VecFrameStack(vector, 4))


def _learned_by_sb3(family: Family, envs: int, vector: Any) -> Measurement:
    from stable_baselines3.common.callbacks import BaseCallback

    watch = Stopwatch(family.warmup_iterations, family.iterations(envs))

    class Watch(BaseCallback):
        def _on_rollout_end(self) -> None:
            watch.tick(self.num_timesteps)

        def _on_step(self) -> bool:
            return not watch.ended

    module, _, name = family.peer.partition(":")
    algorithm = getattr(importlib.import_module(module), name)
    model = algorithm(family.policy, vector, device="cpu", **family.theirs(envs))
    model.learn(NEVER, callback=Watch())
    return watch.measurement()


def rejax(family: Family, envs: int, _backend: str) -> Measurement:
    """The whole training as one compiled call, which is timed from its first step to its last."""
    import jax
    from rejax import PPO

    steps = family.iterations(envs) * family.rollout_steps * envs
    algorithm = PPO.create(
        env=family.env_id,
        num_envs=envs,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
        **family.theirs(envs),
    )
    algorithm = algorithm.replace(eval_callback=lambda *_: ())
    train = jax.jit(algorithm.train).lower(jax.random.PRNGKey(0)).compile()
    cpu, wall = time.process_time(), time.perf_counter()
    jax.block_until_ready(train(jax.random.PRNGKey(0)))
    return Measurement(steps, time.process_time() - cpu, time.perf_counter() - wall)


def floor(family: Family, envs: int, backend: str) -> Measurement:
    """The same numbers of environment steps, forward passes and optimiser steps, with nothing around them.

    The networks are ours in their quickest form, so that the distance is that of the loop and not of the maths.
    """
    import numpy as np
    from gymnasium import spaces

    from rl_training.algorithms.optimizer import FlatOptimizer
    from rl_training.envs.types import Spaces
    from rl_training.kernels import using
    from rl_training.kernels.policies import array_policy
    from rl_training.runtime.ppo_trainer import PPOLearner, PPOParams

    step_envs = _bare_envs(family.env_id, envs, backend)
    rows = family.rollout_steps * envs
    params = PPOParams()
    policy = PPOLearner.build_policy(params, Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    optimizer = FlatOptimizer(policy.parameters(), eps=params.adam_eps, kind=params.optimizer)
    arrays = array_policy(policy)
    assert arrays is not None
    nets = (arrays.actor, arrays.critic)
    generator = np.random.default_rng(0)
    minibatch = generator.standard_normal((rows // family.minibatches, 4), dtype=np.float32)
    rollout = np.zeros((rows, 4), dtype=np.float32)
    watch = Stopwatch(family.warmup_iterations, family.iterations(envs))
    for iteration in range(watch.last + 1):
        watch.tick(iteration * rows)
        for _ in range(family.rollout_steps):
            nets[0](step_envs())
        nets[1](rollout)
        for _ in range(family.epochs * family.minibatches):
            for net in nets:
                net.backward(net.forward(minibatch) / np.float32(len(minibatch)))
            with using("auto"):
                optimizer.apply_gradient(learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)
    return watch.measurement()


def _bare_envs(env_id: str, count: int, backend: str) -> Callable[[], Any]:
    """A function that steps all environments once; the pole is balanced by hand, for episodes as a policy has them."""
    import gymnasium as gym
    import numpy as np

    from rl_training.envs.factory import EnvSpec, make_envs

    if backend == "auto":
        # As our factory makes it, without Gymnasium's check of every action.
        vector = make_envs(EnvSpec(env_id, backend="native"), count).envs  # type: ignore[attr-defined]
        batch, _ = vector.reset(seed=0)

        def step_together() -> Any:
            nonlocal batch
            batch = vector.step((batch[:, 2] + batch[:, 3] > 0).astype(np.int64))[0]
            return batch

        return step_together

    singles = [gym.make(env_id, disable_env_checker=True) for _ in range(count)]
    rows = np.stack([env.reset(seed=index)[0] for index, env in enumerate(singles)])

    def step_each() -> Any:
        actions = (rows[:, 2] + rows[:, 3] > 0).astype(np.int64).tolist()
        for index, env in enumerate(singles):
            rows[index], _, terminated, truncated, _ = env.step(actions[index])
            if terminated or truncated:
                rows[index] = env.reset()[0]
        return rows

    return step_each


PEERS: dict[str, Callable[[Family, int, str], Measurement]] = {
    "ours": ours,
    "sb3": sb3,
    "sb3_atari": sb3_atari,
    "rejax": rejax,
    "floor": floor,
}


def memory(family: Family, envs: int, backend: str, at: tuple[int, ...] = (50_000, 500_000)) -> dict[str, float]:
    """Resident megabytes of our training after so many steps."""
    from rl_training.experiment.config import make_config
    from rl_training.runtime.callbacks import Callback
    from rl_training.runtime.manager import train_run

    resident: dict[str, float] = {}

    class Watch(Callback):
        def on_log(self, session: Any, row: Any) -> None:
            for steps in at:
                if row["global_step"] >= steps and str(steps) not in resident:
                    resident[str(steps)] = _resident_megabytes()
            if len(resident) == len(at):
                session.request_stop("measured")

    with tempfile.TemporaryDirectory() as folder:
        train_run(make_config(our_config(family, envs, backend, folder)), callbacks=[Watch()])
    return resident


def _resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS")
