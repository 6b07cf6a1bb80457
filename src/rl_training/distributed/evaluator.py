"""`RayEvaluator`: periodic evaluations in a process of their own, beside training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_training.distributed.connection import LOST, MAX_DEATHS, connect, processors, ray
from rl_training.distributed.worker import build_policy, from_wire, to_wire
from rl_training.envs.factory import make_envs
from rl_training.envs.sources import EnvSource
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.kernels import using
from rl_training.runtime.evaluation import Evaluation, evaluate
from rl_training.runtime.policy import PolicySnapshot, apply_snapshot
from rl_training.runtime.threads import default_threads, prepare_process


class EvaluatingWorker:
    """An actor's class."""

    def start(self, config: TrainConfig, env: EnvSource | None) -> None:
        self.episodes, self.kernels = config.eval_episodes, config.kernels
        self.envs = make_envs(config.env_spec(env, evaluation=True), min(self.episodes, config.num_envs))
        prepare_process(config.threads or default_threads(self.envs))
        self.policy = build_policy(config, self.envs.spaces)

    def evaluate(self, snapshot: PolicySnapshot, seed: int, max_steps: int | None) -> Evaluation:
        apply_snapshot(self.policy, from_wire(snapshot))
        with using(self.kernels):
            return evaluate(self.policy, self.envs, episodes=self.episodes, seed=seed, max_steps=max_steps)


class RayEvaluator:
    """One evaluation at a time: a second one waits for the first, so that results come in order.

    A process that dies is replaced, and evaluates the same policy again.
    """

    def __init__(self, config: TrainConfig, env: EnvSource | None) -> None:
        connect(config.ray_address)
        self._config, self._env = config, env
        self._actor_class = ray.remote(num_cpus=processors(config.ray_address))(EvaluatingWorker)
        self._question: tuple[Any, ...] = ()  # what it was asked last, in the object store
        self._step = 0
        self._result: Any = None
        self._deaths_in_a_row = 0
        self._start()

    def submit(self, snapshot: PolicySnapshot, *, step: int, seed: int, max_steps: int | None) -> None:
        """After `finished(wait=True)`."""
        self._step, self._question = step, (ray.put(to_wire(snapshot)), seed, max_steps)
        self._ask()

    def finished(self, *, wait: bool) -> Evaluation | None:
        while self._result is not None:
            if not wait and not ray.wait([self._result], timeout=0)[0]:
                return None
            try:
                ray.get(self._started)
                evaluation = ray.get(self._result)
            except LOST as error:
                self._replace(error)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            else:
                self._result, self._deaths_in_a_row = None, 0
                return replace(evaluation, step=self._step)
        return None

    def close(self) -> None:
        ray.kill(self._actor)

    def _start(self) -> None:
        self._actor = self._actor_class.remote()
        self._started = self._actor.start.remote(self._config, self._env)

    def _ask(self) -> None:
        self._result = self._actor.evaluate.remote(*self._question)

    def _replace(self, error: Exception) -> None:
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row >= MAX_DEATHS:
            name = self._config.env_spec(self._env, evaluation=True).name
            times = f"{self._deaths_in_a_row} times in a row"
            raise RLTrainingError(f"the background evaluator died {times} with {name}: {error}") from error
        self._start()
        self._ask()
