"""`RayEvaluator`: periodic evaluations in a process of their own, beside training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_training.distributed.connection import connect, processors, ray
from rl_training.distributed.worker import build_policy, from_wire, to_wire
from rl_training.envs.factory import EnvSource, make_envs
from rl_training.experiment.config import TrainConfig
from rl_training.kernels import using
from rl_training.runtime.evaluation import Evaluation, evaluate
from rl_training.runtime.policy import PolicySnapshot, apply_snapshot
from rl_training.runtime.session import default_threads, limit_threads


class EvaluatingWorker:
    """An actor's class."""

    def start(self, config: TrainConfig, env: EnvSource | None) -> None:
        self.episodes, self.kernels = config.eval_episodes, config.kernels
        self.envs = make_envs(config.env_spec(env, evaluation=True), min(self.episodes, config.num_envs))
        limit_threads(config.threads or default_threads(self.envs))
        self.policy = build_policy(config, self.envs.spaces)

    def evaluate(self, snapshot: PolicySnapshot, seed: int, max_steps: int | None) -> Evaluation:
        apply_snapshot(self.policy, from_wire(snapshot))
        with using(self.kernels):
            return evaluate(self.policy, self.envs, episodes=self.episodes, seed=seed, max_steps=max_steps)


class RayEvaluator:
    """One evaluation at a time: a second one waits for the first, so that results come in order."""

    def __init__(self, config: TrainConfig, env: EnvSource | None) -> None:
        connect(config.ray_address)
        self._actor = ray.remote(num_cpus=processors(config.ray_address))(EvaluatingWorker).remote()
        self._started = self._actor.start.remote(config, env)
        self._under_way: tuple[int, Any] | None = None

    def submit(self, snapshot: PolicySnapshot, *, step: int, seed: int, max_steps: int | None) -> None:
        """After `finished(wait=True)`."""
        self._under_way = (step, self._actor.evaluate.remote(to_wire(snapshot), seed, max_steps))

    def finished(self, *, wait: bool) -> Evaluation | None:
        if self._under_way is None:
            return None
        step, result = self._under_way
        if not wait and not ray.wait([result], timeout=0)[0]:
            return None
        self._under_way = None
        ray.get(self._started)
        return replace(ray.get(result), step=step)

    def close(self) -> None:
        ray.kill(self._actor)
