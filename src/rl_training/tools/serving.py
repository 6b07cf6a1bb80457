"""`PolicyService`: a policy that many clients ask at once. What waits while it computes is its next batch."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.data.trees import tree_leaves, tree_map
from rl_training.errors import ConfigError
from rl_training.runtime.opening import LoadedPolicy
from rl_training.runtime.workflows import act_on, checked_rows
from rl_training.tools.wire import arrays_from

REMEMBERED_LATENCIES = 1_000
KEYS = {"obs", "action_mask", "session", "deterministic", "reset"}


@dataclass(frozen=True)
class Limits:
    """The most that clients may ask for."""

    body_bytes: int = 8_000_000
    sessions: int = 1_000
    session_idle_s: float = 600.0
    batch_rows: int = 256


class TooManySessions(ConfigError):
    """Every session that the limit allows is in use."""


class UnknownSession(ConfigError):
    """A session that was never begun, was ended, or was idle for too long."""


class Question(NamedTuple):
    """The rows of one request, with the memory before them."""

    rows: Any
    state: NDArray[Any]
    deterministic: bool
    answer: asyncio.Future[tuple[NDArray[Any], NDArray[Any]]]

    @property
    def num_rows(self) -> int:
        return len(self.state)


@dataclass
class Memory:
    """The recurrent state of a client's episode; one request at a time may move it."""

    state: NDArray[Any]
    used_at: float = field(default_factory=time.monotonic)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolicyService:
    """Checks requests one by one and answers them batch by batch, in one thread."""

    def __init__(self, policy: LoadedPolicy, limits: Limits) -> None:
        self.policy = policy
        self.limits = limits
        self.sessions: dict[str, Memory] = {}
        self.counts = {"requests": 0, "errors": 0, "rows": 0, "batches": 0}
        self.latencies: deque[float] = deque(maxlen=REMEMBERED_LATENCIES)
        self._waiting: deque[Question] = deque()
        self._work = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")

    def begin_session(self) -> str:
        now = time.monotonic()
        for name in [n for n, m in self.sessions.items() if now - m.used_at > self.limits.session_idle_s]:
            del self.sessions[name]
        if len(self.sessions) >= self.limits.sessions:
            raise TooManySessions(f"there are {self.limits.sessions} sessions; end one, or raise --max-sessions")
        name = secrets.token_urlsafe(16)
        self.sessions[name] = Memory(self._initial_state(1))
        return name

    def end_session(self, name: str) -> None:
        self._session(name)
        del self.sessions[name]

    async def act(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request, `{"action": …}`; a ConfigError says what is wrong with it."""
        started = time.perf_counter()
        if unknown := message.keys() - KEYS:
            raise ConfigError(f"unknown key {min(map(str, unknown))!r}; a request has {', '.join(sorted(KEYS))}")
        rows, batched = self._rows(message)
        if message.get("session") is None:
            actions, _ = await self._ask(rows, self._initial_state(len(tree_leaves(rows)[0])), message)
        else:
            actions = await self._act_in_session(self._session(message["session"]), rows, message)
        self.latencies.append(time.perf_counter() - started)
        return {"action": (actions if batched else actions[0]).tolist()}

    async def _act_in_session(self, memory: Memory, rows: Any, message: Mapping[str, Any]) -> NDArray[Any]:
        if len(tree_leaves(rows)[0]) != 1:
            raise ConfigError("a session takes one observation at a time; begin a session for each episode")
        async with memory.turn:
            before = self._initial_state(1) if message.get("reset") else memory.state
            actions, memory.state = await self._ask(rows, before, message)
            memory.used_at = time.monotonic()
        return actions

    def _rows(self, message: Mapping[str, Any]) -> tuple[Any, bool]:
        try:
            obs, mask = arrays_from(message["obs"]), message.get("action_mask")
            rows, batched = checked_rows(self.policy.spaces, obs, None if mask is None else arrays_from(mask))
        except KeyError as error:
            raise ConfigError("the request has no 'obs'") from error
        except ValueError as error:
            raise ConfigError(f"obs: {error}") from error
        if not 0 < len(tree_leaves(rows)[0]) <= self.limits.batch_rows:
            raise ConfigError(f"a request has 1 to {self.limits.batch_rows} observations (--max-batch)")
        return rows, batched

    def _session(self, name: Any) -> Memory:
        memory = self.sessions.get(name) if isinstance(name, str) else None
        if memory is None:
            raise UnknownSession(f"there is no session {name!r:.60}; begin one with POST /sessions")
        return memory

    def _initial_state(self, count: int) -> NDArray[Any]:
        return self.policy.policy.initial_state(count).cpu().numpy()

    async def _ask(
        self, rows: Any, state: NDArray[Any], message: Mapping[str, Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        deterministic = message.get("deterministic", True)
        if not isinstance(deterministic, bool):
            raise ConfigError(f"deterministic: expected true or false, got {deterministic!r:.60}")
        question = Question(rows, state, deterministic, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._work.set()
        return await question.answer

    async def work(self) -> None:
        """Answers what waits, for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                batch = self._next_batch()
                loop = asyncio.get_running_loop()
                try:
                    actions, states = await loop.run_in_executor(self._thread, self._compute, batch)
                except Exception as error:  # noqa: BLE001  # of the user's own network; the others are still served
                    self._fail(batch, error)
                else:
                    self._hand_out(batch, actions, states)

    def _next_batch(self) -> list[Question]:
        """Takes questions that wait and are acted on alike, up to the limit of rows."""
        batch = [self._waiting.popleft()]
        rows = batch[0].num_rows
        while self._waiting and self._waiting[0].deterministic == batch[0].deterministic:
            rows += self._waiting[0].num_rows
            if rows > self.limits.batch_rows:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _compute(self, batch: list[Question]) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = tree_map(lambda *leaves: np.concatenate(leaves), *(question.rows for question in batch))
        state = np.concatenate([question.state for question in batch])
        return act_on(self.policy, rows, state=state, deterministic=batch[0].deterministic)

    def _hand_out(self, batch: list[Question], actions: NDArray[Any], states: NDArray[Any]) -> None:
        self.counts["batches"] += 1
        first = 0
        for question in batch:
            last = first + question.num_rows
            if not question.answer.done():  # the client may have gone
                question.answer.set_result((actions[first:last], states[first:last]))
            first = last
        self.counts["rows"] += first

    @staticmethod
    def _fail(batch: list[Question], error: Exception) -> None:
        for question in batch:
            if not question.answer.done():
                question.answer.set_exception(error)
