"""How a process is stopped: SIGINT and SIGTERM from its first second to its last, and environments that hang.

A first signal asks the training loop to finish its iteration and to save. A second one, or the end of `GRACE_S`, calls
the main thread back from wherever an environment keeps it: what was learned up to then is saved, if nothing was yet. A
main thread that does not come back within `LAST_S` is given up, and the process ends; the last checkpoint is good then.
Where no loop runs, the first signal already calls back. This module imports nothing heavy, because it is needed first.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rl_training.envs.overdue import find_overdue
from rl_training.errors import EnvironmentFault, StoppedBySignal

GRACE_S = 4.0
LAST_S = 2.0
POLL_S = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption(KeyboardInterrupt):
    """Calls the main thread back. It is no `Exception`, so that an environment does not catch it as its own."""

    def __init__(self, fault: str | None = None) -> None:
        super().__init__(fault or "interrupted")
        self.fault = fault

    def reraise_fault(self) -> None:
        """Raises the environment's fault that was the reason, if one was."""
        if self.fault is not None:
            raise EnvironmentFault(self.fault) from None


class Stopper:
    """The state of stopping, and a thread that watches over time. One of them is active in a process."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.hurries = False  # the loop is to stop wherever it can
        self.has_saved = False  # there is a checkpoint
        self._ask: Callable[[str], None] | None = None
        self._interruptible = True
        self._saving = False
        self._main = threading.main_thread().ident or 0
        self._deadline = float("inf")
        self._called_back = False
        self._fault: str | None = None  # why the watching thread calls back
        self._fault_since = 0.0
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stopper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._finished.set()
        self._thread.join()

    @contextmanager
    def asking(self, ask: Callable[[str], None]) -> Iterator[None]:
        """While a loop runs that can be asked to stop; it says itself where it may be interrupted."""
        self._ask, self._interruptible = ask, False
        try:
            yield
        finally:
            self._ask, self._interruptible = None, True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within this the main thread may be called back at any moment."""
        before, self._interruptible = self._interruptible, True
        try:
            self.check()
            yield
        finally:
            self._interruptible = before

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within this the process is not given up, unless the user insists."""
        self._saving = True
        try:
            yield
            self.has_saved = True
        finally:
            self._saving = False

    @property
    def may_save(self) -> bool:
        """A second signal wants to leave at once; where there is no checkpoint at all, one is made."""
        return len(self.received) < 2 or not self.has_saved

    def check(self) -> None:
        """Where the loop can stop, it stops if it was told to hurry."""
        if self.hurries:
            raise Interruption

    def on_signal(self, signum: int, _frame: Any) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            if self._interruptible:
                raise Interruption(fault)
            return
        if not self._called_back:  # otherwise it is the watching thread that calls
            self.received.append(signum)
        if len(self.received) == 1 and not self._called_back and self._ask is not None:
            self._deadline = time.monotonic() + GRACE_S
            self._ask(signal.Signals(signum).name)
            return
        if len(self.received) > 2 or (self._saving and self.has_saved):
            self.give_up()
        self._hurry()

    def _hurry(self) -> None:
        self.hurries, self._called_back = True, False
        self._deadline = time.monotonic() + LAST_S
        if self._interruptible:
            raise Interruption

    def _watch(self) -> None:
        while not self._finished.wait(POLL_S):
            if time.monotonic() >= self._deadline and not self._saving:
                if self.hurries or self._called_back:
                    self.give_up()
                self._called_back = True
                self._deadline = time.monotonic() + LAST_S
                signal.pthread_kill(self._main, signal.SIGTERM)
            self._watch_environments()

    def _watch_environments(self) -> None:
        complaint = find_overdue()
        if complaint is None:
            self._fault_since = 0.0
        elif not self._fault_since:
            self._fault_since = time.monotonic()
            self._fault = complaint
            signal.pthread_kill(self._main, signal.SIGTERM)
        elif time.monotonic() - self._fault_since > LAST_S:
            leave(EnvironmentFault.exit_code, f"error: {complaint}\n")

    def give_up(self) -> NoReturn:
        name = signal.Signals(self.received[0]).name
        leave(128 + self.received[0], f"error: stopped by {name} before it could save; the last checkpoint is good\n")


def leave(exit_code: int, last_words: str = "") -> NoReturn:
    """Ends the process at once, and the environments' processes with it."""
    for child in multiprocessing.active_children():
        child.kill()
    os.write(2, last_words.encode())
    os._exit(exit_code)


_active: Stopper | None = None
_UNREACHED = Stopper()  # by signals: it stands in where none is active


def leave_if_told() -> None:
    """Ends this process at once if a signal has asked it to stop."""
    if _active is not None and _active.received:
        _active.give_up()


@contextmanager
def stoppable() -> Iterator[Stopper]:
    """Within this, signals stop what runs, and an environment that hangs is a fault; the outermost one decides.

    In another thread than the main one, which is the only one that Python tells of signals, it does nothing.
    """
    global _active
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield active()
        return
    stopper = _active = Stopper()
    previous = {signum: signal.signal(signum, stopper.on_signal) for signum in SIGNALS}
    stopper.start()
    try:
        yield stopper
    except Interruption as interruption:
        interruption.reraise_fault()
    finally:
        stopper.finish()
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        _active = None
    if stopper.received:
        raise StoppedBySignal(stopper.received[0])


def active() -> Stopper:
    """The stopper of the main thread; elsewhere, and where there is none, one that no signal reaches."""
    if _active is None or threading.current_thread() is not threading.main_thread():
        return _UNREACHED
    return _active
