"""`AsyncEnvs`: each environment in a process of its own, which may hang or die without taking the run with it."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any
from weakref import WeakSet

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from rl_training.data.trees import space_map, tree_map
from rl_training.envs.answers import write_row
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.errors import EnvironmentFault

CLOSE_S = 2.0  # for environments to close by themselves

_log = logging.getLogger(__name__)


@dataclass
class _Worker:
    process: Any
    pipe: Connection


_open: WeakSet[AsyncEnvs] = WeakSet()


@atexit.register
def _end_all() -> None:
    """Python would ask what is still open to end by SIGTERM, which it ignores, and wait for it."""
    for envs in list(_open):
        envs.kill()


class AsyncEnvs(Envs):
    """Semantics are those of `SyncEnvs`, of which every process runs one with a single environment.

    An environment that does not answer within `timeout_s` (0: it may take for ever), or whose process dies, is a fault;
    up to `restarts` times it is replaced instead. Its episode is then cut: the row in which it happened pays nothing,
    is truncated, and has the observation before it as its final one.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]], *, timeout_s: float = 0.0, restarts: int = 0) -> None:
        probe = makers[0]()
        self.spaces = Spaces(probe.observation_space, probe.action_space)
        probe.close()
        self.num_envs = len(makers)
        self._makers = makers
        self._timeout_s, self._restarts = timeout_s, restarts
        self._memory = space_map(lambda leaf: _shared_bytes(leaf, self.num_envs), self.spaces.observation)
        self._obs = _views(self._memory, self.spaces.observation, self.num_envs)
        self._valid = np.ones(self.num_envs, dtype=bool)
        self._steps = self._seed = self._lives = self._asked = 0
        self._workers = [self._started(index) for index in range(self.num_envs)]
        _open.add(self)

    def reset(self, seed: int) -> Any:
        self._seed = seed
        self._ask_all("reset", [seed + index for index in range(self.num_envs)])
        return tree_map(np.copy, self._obs)

    def step(self, actions: NDArray[Any]) -> EnvStep:
        self._steps += 1
        before = tree_map(np.copy, self._obs) if self._restarts else None
        answers = self._ask_all("step", list(actions))
        for index in [index for index, answer in enumerate(answers) if answer is None]:
            answers[index] = (0.0, False, True, tree_map(lambda leaf, i=index: leaf[i], before))
        rewards, terminations, truncations, finals = zip(*answers, strict=True)
        terminated, truncated = np.array(terminations), np.array(truncations)
        final_obs = [final for final in finals if final is not None]
        return EnvStep(
            obs=self._obs,
            rewards=np.array(rewards, dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            valid=self._valid,
            starts=terminated | truncated,
            final_rows=(terminated | truncated).nonzero()[0],
            final_obs=tree_map(lambda *leaves: np.stack(leaves), *final_obs) if final_obs else None,
        )

    def at(self) -> str:
        return f"vector step {self._steps}"

    def close(self) -> None:
        """Asks the environments to close, and ends those that do not."""
        for worker in self._workers:
            self._send(worker, ("close", None))
        deadline = time.monotonic() + CLOSE_S
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        for worker in self._workers:
            _kill(worker)
        self._workers = []

    def _started(self, index: int) -> _Worker:
        context = multiprocessing.get_context()
        ours, theirs = context.Pipe()
        home = (self._memory, self.spaces.observation, self.num_envs)
        arguments = (index, self._steps, CloudpickleWrapper(self._makers[index]), ours, theirs, home)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _ask_all(self, command: str, arguments: Sequence[Any]) -> list[Any]:
        """The answer of each environment; None of one that had to be replaced, and has begun a new episode."""
        self._asked += 1
        for worker, argument in zip(self._workers, arguments, strict=True):
            self._send(worker, (command, argument))
        deadline = time.monotonic() + self._timeout_s if self._timeout_s else None
        return [self._answer(index, deadline) for index in range(self.num_envs)]

    def _send(self, worker: _Worker, message: tuple[str, Any]) -> None:
        try:
            worker.pipe.send((self._asked, *message))
        except OSError:  # it is dead: whoever waits for its answer will find out
            return

    def _answer(self, index: int, deadline: float | None) -> Any:
        pipe = self._workers[index].pipe
        try:
            while pipe.poll(None if deadline is None else max(0.0, deadline - time.monotonic())):
                asked, answer = pipe.recv()
                if asked == self._asked:  # others are answers that nobody has waited for
                    break
            else:
                return self._replaced(index, f"it has not answered for {self._timeout_s:g} s (step_timeout_s)")
        except (EOFError, OSError):
            return self._replaced(index, _how_it_ended(self._workers[index].process))
        if isinstance(answer, EnvironmentFault):
            raise answer
        return answer

    def _replaced(self, index: int, problem: str) -> None:
        """Gives the environment another process and its first observation."""
        _kill(self._workers[index])
        problem = f"environment {index}, step {self._steps}: {problem}"
        if not self._restarts:
            raise EnvironmentFault(f"{problem}; env_restarts: n would replace it n times")
        self._restarts -= 1
        self._lives += 1
        _log.warning("%s; it is replaced and its episode is cut (%d more env_restarts)", problem, self._restarts)
        self._workers[index] = self._started(index)
        self._send(self._workers[index], ("reset", self._seed + index + self._lives * self.num_envs))
        deadline = time.monotonic() + self._timeout_s if self._timeout_s else None
        self._answer(index, deadline)


def _serve(
    index: int, steps: int, maker: Callable[[], gym.Env], parents: Connection, pipe: Connection, home: tuple[Any, ...]
) -> None:
    """Answers until it is told to close, or until nobody asks any more."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # they reach whole groups of processes; the run decides
        signal.signal(signum, signal.SIG_IGN)
    parents.close()
    rows = _views(*home)
    envs: SyncEnvs | None = None
    while True:
        try:
            asked, command, argument = pipe.recv()
        except EOFError:
            return
        if command == "close":
            break
        try:
            envs = envs or SyncEnvs([maker], first=index, steps=steps)
            answer = _answered(envs, command, argument, rows, index)
        except EnvironmentFault as fault:
            answer = fault
        pipe.send((asked, answer))
    if envs is not None:
        envs.close()


def _answered(envs: SyncEnvs, command: str, argument: Any, rows: Any, index: int) -> Any:
    """Does what was asked; the observation goes to shared memory, the rest is returned."""
    answer: tuple[Any, ...] = ()
    if command == "reset":
        obs = envs.reset(argument)
    else:
        step = envs.step(np.asarray(argument)[None])
        obs = step.obs
        final = None if step.final_obs is None else tree_map(lambda leaf: leaf[0], step.final_obs)
        answer = (step.rewards[0], bool(step.terminated[0]), bool(step.truncated[0]), final)
    write_row(rows, tree_map(lambda leaf: leaf[0], obs), index, EnvironmentFault)
    return answer


def _shared_bytes(space: gym.Space, num_envs: int) -> Any:
    size = num_envs * int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
    return multiprocessing.get_context().RawArray("b", max(size, 1))


def _views(memory: Any, space: gym.Space, num_envs: int) -> Any:
    """The shared memory as a row of observations for each environment."""

    def view(leaf: gym.Space, raw: Any) -> NDArray[Any]:
        shape = (num_envs, *(leaf.shape or ()))
        return np.frombuffer(raw, dtype=leaf.dtype, count=int(np.prod(shape))).reshape(shape)

    return tree_map(view, space_map(lambda leaf: leaf, space), memory)


def _kill(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _how_it_ended(process: Any) -> str:
    process.join(CLOSE_S)
    code = process.exitcode
    if code is None:
        return "its process no longer answers"
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process exited with {code}"
