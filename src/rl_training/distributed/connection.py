"""The connection to Ray, which every Ray module takes from here."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rl_training.errors import RLTrainingError, import_extra

ray = import_extra("ray", "ray")

LOST = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError)  # the process, or what it had made, is gone
ATTEMPTS = 3
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}

_log = logging.getLogger(__name__)


def connect(address: str | None) -> None:
    """Joins the cluster at the address, or starts Ray on this machine; a connection that is there is used."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray will cease to hide GPUs from processes that asked for none, and warns. Ours act on the CPU anyway.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _own_sigterm(), _same_imports():
                ray.init(address, **QUIET)
            return
        except Exception as error:  # Ray says with a bare Exception that its services were slow
            ray.shutdown()
            reason = f"Ray did not start (attempt {attempt} of {ATTEMPTS}): {' '.join(str(error).split())}"
            if attempt == ATTEMPTS:
                raise RLTrainingError(f"{reason}; is the machine overloaded, or the address wrong?") from error
            _log.warning("%s; trying again", reason)


def processors(address: str | None) -> int:
    """Returns how many processors a process asks for: on this machine none, the user has set the processes."""
    return 0 if address is None else 1


@contextmanager
def _same_imports() -> Iterator[None]:
    """Workers that this machine starts find the user's environments where this process does."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray replaces the handler of the signal by which a run is asked to save and stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
