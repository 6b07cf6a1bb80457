"""`AheadCollector`: a second process collects the next rollout while the learner learns from this one, without Ray.

What is learned from was collected by the policy of one iteration before. That does not depend on how fast either of
them is: equal runs are equal, and a checkpoint is exact because it begins new episodes.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal
import threading
import time
from collections.abc import Mapping
from ctypes import c_double
from multiprocessing.connection import Connection
from typing import Any

import torch
from gymnasium.vector.utils import CloudpickleWrapper

from rl_training.data.fragments import side_by_side
from rl_training.data.rollout import Rollout
from rl_training.distributed.overlap import Overlap
from rl_training.distributed.worker import CollectingWorker, to_wire
from rl_training.envs.overdue import watch
from rl_training.envs.processes import how_it_ended
from rl_training.envs.sources import EnvSource
from rl_training.envs.types import Envs
from rl_training.errors import EnvironmentFault, RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.policy import PolicySnapshot
from rl_training.runtime.side_by_side import end_with_parent
from rl_training.runtime.stopping import SIGNALS


class AheadCollector:
    shares_weights = False
    restorable = False

    def __init__(
        self, config: TrainConfig, env: EnvSource | None, *, seed: int, like: Envs, device: torch.device
    ) -> None:
        """The other process's environments are `like` the ones given."""
        self.num_envs = config.num_envs
        self.layout = [(config.num_envs, like.kind)]
        self._config, self._env, self._device = config, env, device
        self._overlap = Overlap(1)
        self._snapshot: PolicySnapshot | None = None
        self._start(seed)
        watch(self)

    def publish(self, snapshot: PolicySnapshot) -> None:
        """The policy for the rollout that is asked for next."""
        self._snapshot = to_wire(snapshot)

    def collect(self, num_steps: int) -> Rollout:
        """The rollout that is under way; the next one is begun before anybody learns from this."""
        self._overlap.stop_learning()
        if not self._is_under_way:
            self._send_for(num_steps)
        fragment, seconds = self._answer()
        self._overlap.add_work(self._sent_at, self._sent_at + seconds)
        self._send_for(num_steps)
        rollout = side_by_side([fragment], self._device)
        self._overlap.start_learning()
        return rollout

    def restart(self, seed: int) -> None:
        if self._is_lost:
            self.close()
            self._start(seed)
        else:
            self._ask("restart", seed)

    def metrics(self) -> dict[str, float]:
        return self._overlap.flush()

    def state_dict(self) -> dict[str, Any]:
        return self._ask("state_dict")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ask("load_state_dict", state)

    def close(self) -> None:
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def overdue(self) -> str | None:
        """Says that the environments have been busy for too long, if somebody waits for them."""
        since, limit = self._busy_since.value, self._config.step_timeout_s
        if not (self._is_awaited and limit and since and time.monotonic() - since > limit):
            return None
        return f"{self._config.env_id}: it has not answered for {limit:g} s (step_timeout_s)"

    def _start(self, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._busy_since = context.RawValue("d")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._busy_since), name="collecting ahead")
        self._process.start()
        atexit.register(self._process.kill)  # Python would wait for it
        theirs.close()
        self._is_under_way = self._is_awaited = self._is_lost = False
        config, env = self._config, self._env
        self._ask("start", CloudpickleWrapper(lambda: (config, env)), seed)

    def _send_for(self, num_steps: int) -> None:
        self._sent_at = time.monotonic()
        self._say("collect", num_steps, self._snapshot)
        self._is_under_way = True

    def _ask(self, method: str, *args: Any) -> Any:
        """The answer to another question than for a rollout; one that is under way is dropped."""
        if self._is_under_way:
            self._answer()
        self._say(method, *args)
        return self._answer()

    def _say(self, method: str, *args: Any) -> None:
        try:
            self._pipe.send((method, args))
        except OSError:
            raise self._end() from None

    def _answer(self) -> Any:
        self._is_awaited, self._is_lost = True, True  # whoever is called back from here may have read half of it
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._end() from None
        finally:
            self._is_awaited = self._is_under_way = False
        self._is_lost = False
        if isinstance(answer, RLTrainingError):
            raise answer
        return answer

    def _end(self) -> EnvironmentFault:
        """The other process has ended."""
        return EnvironmentFault(f"{self._config.env_id}: the process that steps it {how_it_ended(self._process)}")


def _serve(pipe: Connection, busy_since: c_double) -> None:
    """The other process: answers questions until it is killed. Signals are for the one that asks."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    worker = CollectingWorker(busy_since)
    while True:
        method, args = pipe.recv()
        try:
            if method == "start":
                sent, seed = args
                config, env = sent()
                args = (config, env, config.num_envs, seed)
            answer = getattr(worker, method)(*args)
        except RLTrainingError as error:
            answer = error
        pipe.send(answer)
