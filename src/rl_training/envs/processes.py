"""`AsyncEnvs`: each environment in a process of its own, which may hang or die without taking the run with it."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import multiprocessing
import signal
import struct
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
from rl_training.envs.infos import InfoRow
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.errors import EnvironmentFault

CLOSE_S = 1.0  # for environments to close by themselves
RESET, STEP, CLOSE = b"r", b"s", b"c"
QUESTION = struct.Struct("<cqq")  # what to do, the question's number, the seed of a reset
ANSWER = struct.Struct("<q?")  # the question's number, and whether the text that follows tells a fault or infos

_log = logging.getLogger(__name__)


class _SharedRows:
    """Memory that all processes see, with a row for each environment. Pipes carry only who is to do what."""

    def __init__(self, spaces: Spaces, num_envs: int) -> None:
        self._spaces, self._num_envs = spaces, num_envs
        number, flag = gym.spaces.Box(0, 1, (), np.float32), gym.spaces.Box(0, 1, (), np.uint8)
        self._kinds = {
            "obs": spaces.observation,
            "final_obs": spaces.observation,
            "actions": spaces.action,
            "rewards": number,
            "terminated": flag,
            "truncated": flag,
        }
        self._memory = {name: space_map(self._allocated, space) for name, space in self._kinds.items()}

    def arrays(self) -> dict[str, Any]:
        """The memory as arrays; every process makes its own."""
        leaves = {name: space_map(lambda leaf: leaf, space) for name, space in self._kinds.items()}
        return {name: tree_map(self._view, leaves[name], self._memory[name]) for name in self._kinds}

    def _allocated(self, space: gym.Space) -> Any:
        size = int(np.prod(self._shape(space))) * np.dtype(space.dtype).itemsize
        return multiprocessing.get_context().RawArray("b", max(size, 1))

    def _view(self, space: gym.Space, memory: Any) -> NDArray[Any]:
        shape = self._shape(space)
        return np.frombuffer(memory, dtype=space.dtype, count=int(np.prod(shape))).reshape(shape)

    def _shape(self, space: gym.Space) -> tuple[int, ...]:
        return (self._num_envs, *(space.shape or ()))


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
        self._shared = _SharedRows(self.spaces, self.num_envs)
        self._rows = self._shared.arrays()
        self._valid = np.ones(self.num_envs, dtype=bool)
        self._infos: list[InfoRow] = []
        self._steps = self._seed = self._lives = self._asked = 0
        self._workers = [self._started(index) for index in range(self.num_envs)]
        _open.add(self)

    def reset(self, seed: int) -> Any:
        self._seed = seed
        self._ask_all(RESET, seed)
        return tree_map(np.copy, self._rows["obs"])

    def step(self, actions: NDArray[Any]) -> EnvStep:
        self._steps += 1
        before = tree_map(np.copy, self._rows["obs"]) if self._restarts else None
        self._rows["actions"][:] = actions
        for index in self._ask_all(STEP):
            self._cut(index, tree_map(lambda leaf, i=index: leaf[i], before))
        terminated, truncated = (self._rows[name].astype(bool) for name in ("terminated", "truncated"))
        done = terminated | truncated
        final_rows = done.nonzero()[0]
        return EnvStep(
            obs=self._rows["obs"],
            rewards=self._rows["rewards"].copy(),
            terminated=terminated,
            truncated=truncated,
            valid=self._valid,
            starts=done,
            final_rows=final_rows,
            final_obs=tree_map(lambda leaf: leaf[final_rows], self._rows["final_obs"]) if len(final_rows) else None,
            infos=tuple(self._infos),
        )

    def at(self) -> str:
        return f"vector step {self._steps}"

    def close(self) -> None:
        """Asks the environments to close, and ends those that do not."""
        for worker in self._workers:
            self._send(worker, CLOSE)
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
        arguments = (index, self._steps, CloudpickleWrapper(self._makers[index]), ours, theirs, self._shared)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _ask_all(self, command: bytes, seed: int = 0) -> list[int]:
        """Returns those that had to be replaced, and have begun a new episode."""
        self._asked += 1
        self._infos.clear()
        for index, worker in enumerate(self._workers):
            self._send(worker, command, seed + index)
        deadline = self._deadline()
        return [index for index in range(self.num_envs) if not self._answers(index, deadline)]

    def _send(self, worker: _Worker, command: bytes, seed: int = 0) -> None:
        try:
            worker.pipe.send_bytes(QUESTION.pack(command, self._asked, seed))
        except OSError:  # it is dead: whoever waits for its answer will find out
            return

    def _deadline(self) -> float:
        return time.monotonic() + (self._timeout_s or float("inf"))

    def _answers(self, index: int, deadline: float) -> bool:
        """Waits for the environment; False if it had to be replaced."""
        pipe = self._workers[index].pipe
        try:
            while pipe.poll(None if deadline == float("inf") else max(0.0, deadline - time.monotonic())):
                answer = pipe.recv_bytes()
                if ANSWER.unpack_from(answer)[0] == self._asked:  # others are answers that nobody has waited for
                    break
            else:
                return self._replace(index, f"it has not answered for {self._timeout_s:g} s (step_timeout_s)")
        except (EOFError, OSError):
            return self._replace(index, f"its process {how_it_ended(self._workers[index].process)}")
        text = answer[ANSWER.size :]
        if ANSWER.unpack_from(answer)[1]:
            raise EnvironmentFault(text.decode())
        if text:
            self._infos.append((index, json.loads(text)))
        return True

    def _replace(self, index: int, problem: str) -> bool:
        """Gives the environment another process and its first observation."""
        _kill(self._workers[index])
        problem = f"environment {index}, step {self._steps}: {problem}"
        if not self._restarts:
            raise EnvironmentFault(f"{problem}; env_restarts: n would replace it n times")
        self._restarts -= 1
        self._lives += 1
        _log.warning("%s; it is replaced and its episode is cut (%d more env_restarts)", problem, self._restarts)
        self._workers[index] = self._started(index)
        self._send(self._workers[index], RESET, self._seed + index + self._lives * self.num_envs)
        self._answers(index, self._deadline())
        return False

    def _cut(self, index: int, last_obs: Any) -> None:
        self._rows["rewards"][index] = 0.0
        self._rows["terminated"][index], self._rows["truncated"][index] = False, True
        write_row(self._rows["final_obs"], last_obs, index, EnvironmentFault)


def _serve(
    index: int,
    steps: int,
    maker: Callable[[], gym.Env],
    parents: Connection,
    pipe: Connection,
    shared: _SharedRows,
) -> None:
    """Answers until it is told to close, or until nobody asks or listens any more."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # they reach whole groups of processes; the run decides
        signal.signal(signum, signal.SIG_IGN)
    parents.close()
    rows = shared.arrays()
    envs: SyncEnvs | None = None
    while True:
        try:
            command, asked, seed = QUESTION.unpack(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            return
        if command == CLOSE:
            break
        is_fault = False
        try:
            envs = envs or SyncEnvs([maker], first=index, steps=steps)
            text = _write_answer(envs, command, seed, rows, index)
        except EnvironmentFault as fault:
            is_fault, text = True, str(fault)
        with contextlib.suppress(ConnectionError):
            pipe.send_bytes(ANSWER.pack(asked, is_fault) + text.encode())
    if envs is not None:
        envs.close()


def _write_answer(envs: SyncEnvs, command: bytes, seed: int, rows: dict[str, Any], index: int) -> str:
    """Does what was asked, and writes what came of it into the environment's row; returns the infos as JSON."""
    if command == RESET:
        _copy_row(rows["obs"], envs.reset(seed), index)
        return ""
    step = envs.step(rows["actions"][index : index + 1])
    _copy_row(rows["obs"], step.obs, index)
    for name in ("rewards", "terminated", "truncated"):
        rows[name][index] = getattr(step, name)[0]
    if step.final_obs is not None:
        _copy_row(rows["final_obs"], step.final_obs, index)
    return json.dumps(step.infos[0][1]) if step.infos else ""


def _copy_row(rows: Any, single: Any, index: int) -> None:
    write_row(rows, tree_map(lambda leaf: leaf[0], single), index, EnvironmentFault)


def _kill(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def how_it_ended(process: Any) -> str:
    """The sentence that follows the name of a process which has ceased to answer."""
    process.join(CLOSE_S)
    code = process.exitcode
    if code is None:
        return "no longer answers"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
