"""Environments that give trouble, for processes that tests start: `--env troubled_envs:Sleeper`."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from support import ScriptedEnv


class Endless(ScriptedEnv):
    """Its episodes never end."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__(length=sys.maxsize)
        self.pause = pause

    def step(self, action: Any) -> Any:
        time.sleep(self.pause)
        return super().step(action)


class Sleeper(ScriptedEnv):
    """Touches `asleep` and hangs at its `at`-th step, stubbornly: whatever is raised in it, it goes on to sleep."""

    def __init__(self, asleep: str, at: int = 40, stubborn: bool = False) -> None:
        super().__init__(length=5)
        self.asleep, self.at, self.stubborn, self.count = Path(asleep), at, stubborn, 0

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            self.asleep.touch()
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    if not self.stubborn:
                        raise
        return super().step(action)


class SlowToMake(ScriptedEnv):
    """Touches `asleep` and takes its time."""

    def __init__(self, asleep: str) -> None:
        Path(asleep).touch()
        time.sleep(600)


class Talkative(ScriptedEnv):
    """Prints, from Python and past it."""

    def step(self, action: Any) -> Any:
        print("a step")
        os.write(1, b"a step past Python\n")
        return super().step(action)


class Mortal(ScriptedEnv):
    """Meets its fate at its `at`-th step, if it was reset with the seed `only_seed`; a file says that it has."""

    def __init__(self, fate: str, at: int = 2, only_seed: int | None = None, met: str = "") -> None:
        super().__init__(length=100)
        self.fate, self.at, self.only_seed, self.met = fate, at, only_seed, met
        self.count, self.doomed = 0, only_seed is None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.doomed = self.only_seed in (None, seed)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.doomed and self.count == self.at and not (self.met and Path(self.met).exists()):
            if self.met:
                Path(self.met).touch()
            self._meet_its_fate()
        return super().step(action)

    def _meet_its_fate(self) -> None:
        if self.fate == "sys.exit":
            sys.exit(0)
        if self.fate == "os._exit":
            os._exit(7)
        if self.fate == "hangs":
            time.sleep(600)
        if self.fate == "none":
            return
        faulthandler.disable()
        os.kill(os.getpid(), signal.Signals[self.fate])
