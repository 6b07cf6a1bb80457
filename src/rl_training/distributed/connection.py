"""The connection to Ray, which every Ray module takes from here."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial

from rl_training.distributed import reaper
from rl_training.errors import RLTrainingError, import_extra
from rl_training.runtime.stopping import leave, leave_if_told

ray = import_extra("ray", "ray")

LOST = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError)  # the process, or what it had made, is gone
OURS = "RL_TRAINING_RAY"  # a variable in the environment of the processes that Ray starts here
ATTEMPTS = 3
MAX_DEATHS = 3  # of one process, without a result between them
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
            with _own_sigterm(), _same_imports(), _this_machine_only() if address is None else nullcontext():
                # Without an address Ray would follow RAY_ADDRESS, or a file that any user may write.
                ray.init(address or "local", **QUIET)
            if address is None:
                _watch_raylet()
            return
        except Exception as error:  # Ray says with a bare Exception that its services were slow
            ray.shutdown()
            reason = f"Ray did not start (attempt {attempt} of {ATTEMPTS}): {' '.join(str(error).split())}"
            if attempt == ATTEMPTS:
                raise RLTrainingError(f"{reason}; is the machine overloaded, or the address wrong?") from error
            _log.warning("%s; trying again", reason)


def _watch_raylet() -> None:
    """Has a thread end this process when its node manager is gone: Ray would, and forget that a signal came before."""
    (raylet,) = ray._private.worker._global_node.all_processes["raylet"]
    threading.Thread(target=_outlive, args=(raylet.process.pid,), name="raylet watch", daemon=True).start()


def _outlive(pid: int) -> None:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # Ray was quicker to take note of its end
        return
    if ray.is_initialized():  # `ray.shutdown` disconnects before it ends the raylet
        leave_if_told()
        leave(RLTrainingError.exit_code)  # the reaper says why


def processors(address: str | None) -> int:
    """Returns how many processors a process asks for: on this machine none, the user has set the processes."""
    return 0 if address is None else 1


@contextmanager
def _this_machine_only() -> Iterator[None]:
    """Ray then listens on 127.0.0.1. It replaces that address by a public one wherever it could serve a cluster."""
    constants = ray._private.ray_constants
    could_serve = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        # For the processes that Ray starts. It would give workers the least share of a machine that others use, too.
        with (
            _environment(constants.ENABLE_RAY_CLUSTERS_ENV_VAR, "0"),
            _environment(constants.RAY_WORKER_NICENESS, "0"),
            _environment(OURS, _reaped_mark()),
            _own_session(),
        ):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = could_serve


def _reaped_mark() -> str:
    """A value that marks processes which are to end with this one, however it ends."""
    mark = uuid.uuid4().hex
    command = [sys.executable, reaper.__file__, f"{OURS}={mark}"]
    reaper_input, announcement = os.pipe()
    subprocess.Popen(command, start_new_session=True, stdin=reaper_input, stdout=subprocess.DEVNULL)
    os.close(reaper_input)
    atexit.register(_announce_the_end, announcement)  # Ray's own handler stands before it, and is called after it
    return mark


def _announce_the_end(reaper_input: int) -> None:
    with suppress(BrokenPipeError):  # someone has ended the reaper
        os.write(reaper_input, b".")


def _same_imports() -> AbstractContextManager[None]:
    """Workers that this machine starts find the user's environments where this process does."""
    return _environment("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


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


@contextmanager
def _own_session() -> Iterator[None]:
    """Keeps Ray's processes from signals to this one's group, as terminals send them: a run needs them to save."""
    services = ray._private.services
    popen = services.ConsolePopen
    services.ConsolePopen = partial(popen, start_new_session=True)
    try:
        yield
    finally:
        services.ConsolePopen = popen
