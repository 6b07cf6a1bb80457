"""Ends what is left of Ray after the process that started it has died: some of its agents wait a minute to notice.

`python reaper.py VARIABLE=VALUE` waits until its parent is gone, gives the others a few seconds to end by themselves,
and kills every process that was started with the variable in its environment. Without `/proc` it can do nothing.
"""

import os
import signal
import sys
import time
from pathlib import Path

POLL_S = 0.5
GRACE_S = 5.0
LONGEST_S = 30.0


def marked_processes(variable: str) -> list[int]:
    """The processes of this user that were started with the variable in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def main(variable: str) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(POLL_S)
    time.sleep(GRACE_S)
    deadline = time.monotonic() + LONGEST_S
    while (left := set(marked_processes(variable)) - {os.getpid()}) and time.monotonic() < deadline:
        for pid in left:  # on a busy machine some have only just been started
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1])
