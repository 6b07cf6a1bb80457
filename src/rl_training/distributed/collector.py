"""`RayCollector`: remote copies of the `LocalCollector` behind the same protocol.

`sync` waits for a fragment of every worker and lays them side by side. `async` hands over whichever is ready and sends
that worker on with the newest policy, while the learner learns; a worker whose fragment nobody has taken yet waits, so
there are never more fragments than workers. A worker that dies, or whose environments hang, is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rl_training.data.fragments import Fragment, side_by_side
from rl_training.data.rollout import Rollout
from rl_training.distributed.connection import LOST, MAX_DEATHS, connect, processors, ray
from rl_training.distributed.overlap import Overlap
from rl_training.distributed.worker import CollectingWorker, to_wire
from rl_training.envs.sources import EnvSource
from rl_training.envs.types import Envs
from rl_training.errors import EnvironmentFault, RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.policy import PolicySnapshot
from rl_training.runtime.session import WORKER, derive_seed
from rl_training.runtime.stopping import Interruption, active

MAX_DEATHS_WITHIN, DEATHS_WINDOW = 5, 10_000  # of one worker, within so many of its steps
START_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 10.0  # for a process that is only asked how it is


@dataclass
class _Worker:
    index: int
    actor: Any = None
    lives: int = 0
    deaths_in_a_row: int = 0
    steps: int = 0
    died_at: list[int] = field(default_factory=list)  # the steps
    hangs: bool = False
    sent_at: float = 0.0  # when it was last asked for a fragment


class RayCollector:
    shares_weights = False

    def __init__(
        self, config: TrainConfig, env: EnvSource | None, *, seed: int, like: Envs, device: torch.device
    ) -> None:
        """The workers' environments are `like` the ones given."""
        connect(config.ray_address)
        self.num_envs = config.num_envs
        self.is_async = config.ray_mode == "async"
        # A barrier serves exact resumption, which there is none of when fragments come in any order.
        self.restorable = like.restorable or self.is_async
        self.layout = [(config.num_envs // config.workers, like.kind)] * config.workers
        self._config, self._env, self._seed, self._device = config, env, seed, device
        # A second thread answers while the first collects.
        actor_options = {"num_cpus": processors(config.ray_address), "concurrency_groups": {"life": 1}}
        self._actor_class = ray.remote(**actor_options)(CollectingWorker)
        self._snapshot_ref: Any = None
        self._in_flight: dict[Any, _Worker] = {}  # by the fragment to come
        self._next_check = 0.0
        self._lost_fragments = 0
        self._overlap = Overlap(config.workers)
        self._workers = [_Worker(index) for index in range(config.workers)]
        self._started(self._workers)

    def publish(self, snapshot: PolicySnapshot) -> None:
        """Into the object store, once: workers on the same machine read the same memory."""
        self._snapshot_ref = ray.put(to_wire(snapshot))

    def collect(self, num_steps: int) -> Rollout:
        self._overlap.stop_learning()
        busy = {worker.index for worker in self._in_flight.values()}
        for worker in self._workers:
            if worker.index not in busy:
                self._send(worker, num_steps)
        fragments: dict[int, Fragment] = {}
        while len(fragments) < (1 if self.is_async else len(self._workers)):
            worker, fragment = self._next_fragment(num_steps)
            fragments[worker.index] = fragment
            if self.is_async:
                self._send(worker, num_steps)
        rollout = side_by_side([fragments[index] for index in sorted(fragments)], self._device)
        self._overlap.start_learning()
        return rollout

    def metrics(self) -> dict[str, float]:
        """Means since the last call, but for the count of fragments lost in all."""
        return {"lost_fragments": float(self._lost_fragments)} | self._overlap.flush()

    def restart(self, seed: int) -> None:
        for worker in self._workers:
            self._ask(worker, "restart", worker_seed(seed, worker.index))

    def state_dict(self) -> dict[str, Any]:
        """Returns the workers' states; asynchronous workers are never at rest and have none."""
        if self.is_async:
            return {"workers": []}
        states = [self._ask(worker, "state_dict") for worker in self._workers]
        return states[0] if len(states) == 1 else {"workers": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for worker, part in zip(self._workers, state.get("workers", [state]), strict=True):
            self._ask(worker, "load_state_dict", part)

    def close(self) -> None:
        self._in_flight.clear()
        for worker in self._workers:
            ray.kill(worker.actor)

    def _send(self, worker: _Worker, num_steps: int) -> None:
        worker.sent_at = time.monotonic()
        self._in_flight[worker.actor.collect.remote(num_steps, self._snapshot_ref)] = worker

    def _next_fragment(self, num_steps: int) -> tuple[_Worker, Fragment]:
        """Waits for the next fragment of any worker; whoever dies meanwhile is replaced and sent for another."""
        while True:
            timeout = self._config.step_timeout_s
            ready, _ = ray.wait(list(self._in_flight), timeout=timeout or None)
            if timeout and time.monotonic() >= self._next_check:
                self._end_hanging_workers()
            if not ready:
                continue
            worker = self._in_flight.pop(ready[0])
            try:
                fragment, seconds = ray.get(ready[0])
            except LOST as error:
                self._lost_fragments += 1
                self._replace(worker, error)
                self._send(worker, num_steps)
            except ray.exceptions.RayTaskError as error:
                raise _as_it_was(error, worker) from error
            else:
                worker.deaths_in_a_row = 0
                worker.steps += num_steps * self.layout[worker.index][0]
                self._overlap.add_work(worker.sent_at, worker.sent_at + seconds)
                return worker, fragment

    def _end_hanging_workers(self) -> None:
        """Kills those whose environments are past their time; the fragments then fail like those of any dead one."""
        timeout = self._config.step_timeout_s
        self._next_check = time.monotonic() + timeout
        for worker in self._in_flight.values():
            if time.monotonic() - worker.sent_at > timeout and self._busy_seconds(worker) > timeout:
                worker.hangs = True
                ray.kill(worker.actor)

    def _busy_seconds(self, worker: _Worker) -> float:
        """Asks since when the environments have been busy; one that holds the interpreter gives no answer."""
        try:
            asked = worker.actor.busy_seconds.options(concurrency_group="life").remote()
            return float(ray.get(asked, timeout=ANSWER_TIMEOUT_S))
        except ray.exceptions.GetTimeoutError:
            return float("inf")
        except LOST:
            return 0.0

    def _ask(self, worker: _Worker, method: str, *args: Any) -> Any:
        """The worker's answer, or its successor's."""
        while True:
            try:
                return ray.get(getattr(worker.actor, method).remote(*args))
            except LOST as error:
                self._replace(worker, error)
            except ray.exceptions.RayTaskError as error:
                raise _as_it_was(error, worker) from error

    def _replace(self, worker: _Worker, error: Exception) -> None:
        if active().received:  # a run that ends needs no worker any more, and the signal may have reached all of them
            raise Interruption from error
        worker.deaths_in_a_row += 1
        hung, worker.hangs = worker.hangs, False
        worker.died_at = [step for step in worker.died_at if step > worker.steps - DEATHS_WINDOW] + [worker.steps]
        often = len(worker.died_at) >= MAX_DEATHS_WITHIN
        if often or worker.deaths_in_a_row >= MAX_DEATHS:
            name = self._config.env_spec(self._env).name
            within = f"{len(worker.died_at)} times within {DEATHS_WINDOW:,} steps"
            times = within if often else f"{worker.deaths_in_a_row} times in a row"
            if hung:
                limit = f"{self._config.step_timeout_s:g} s"
                raise EnvironmentFault(f"worker {worker.index}: {name} hung for more than {limit}, {times}") from error
            raise RLTrainingError(f"worker {worker.index} died {times} with {name}: {error}") from error
        self._started([worker])

    def _started(self, workers: list[_Worker]) -> None:
        """Gives the workers a process and environments, with random numbers that no former life has used."""
        starts = {}
        for worker in workers:
            stream = worker.index + worker.lives * len(self._workers)
            worker.lives += 1
            worker.actor = self._actor_class.remote()
            seed = worker_seed(self._seed, stream)
            share = {"num_envs": self.layout[worker.index][0], "index": worker.index, "seed": seed}
            starts[worker.actor.start.remote(self._config, self._env, **share)] = worker
        ready, late = ray.wait(list(starts), num_returns=len(starts), timeout=START_TIMEOUT_S)
        if late:
            cpus = ray.cluster_resources().get("CPU", 0)
            raise RLTrainingError(f"{len(late)} of {len(starts)} workers did not start; Ray has {cpus:g} CPUs")
        for ref in ready:
            try:
                ray.get(ref)
            except LOST as error:
                self._replace(starts[ref], error)
            except ray.exceptions.RayTaskError as error:
                raise _as_it_was(error, starts[ref]) from error


def worker_seed(seed: int, index: int) -> int:
    """The first has the local collector's own."""
    return seed if index == 0 else derive_seed(seed, WORKER, index)


def _as_it_was(error: Any, worker: _Worker) -> Exception:
    """Unwraps the error that the worker raised."""
    if isinstance(error.cause, EnvironmentFault):
        return EnvironmentFault(f"worker {worker.index}: {error.cause}")
    return error.cause
