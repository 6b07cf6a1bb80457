"""Ends what is left of Ray after the process that started it has died: some of its agents wait a minute to notice.

`python reaper.py VARIABLE=VALUE` waits until its parent is gone, gives the others a few seconds to end by themselves,
and kills every process that was started with the variable in its environment. Without `/proc` it can do nothing.

A parent that ends by itself writes to the reaper's input before. If it did not, and Ray's node manager ended before
it, then Ray has ended the parent for that reason and without a word: the reaper says so in its place.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

POLL_S = 0.5
GRACE_S = 3.0
LONGEST_S = 30.0
LAST_WORDS = b"error: the run ended with Ray's node manager (raylet); resume it from its latest checkpoint\n"


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


def is_announced(end_of: int) -> bool:
    """Waits for a word from the parent, or its end; returns whether there was a word."""
    while os.getppid() == end_of:
        if select.select([0], [], [], POLL_S)[0]:
            return bool(os.read(0, 1))
    return False


def lost_its_node_manager(variable: str) -> bool:
    """Whether processes of Ray run, and not the one that holds them together."""
    commands = []
    for pid in marked_processes(variable):
        try:
            commands.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return bool(commands) and not any(b"raylet/raylet" in command for command in commands)


def main(variable: str) -> None:
    parent = os.getppid()
    if not is_announced(end_of=parent) and lost_its_node_manager(variable):
        os.write(2, LAST_WORDS)
    os.close(2)  # whoever reads what the parent wrote to the end need not wait for the reaper
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
