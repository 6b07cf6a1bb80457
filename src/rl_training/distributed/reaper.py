"""Ends what is left of Ray after the process that started it has died: some of its agents wait a minute to notice.

`python reaper.py VARIABLE=VALUE` waits until its parent is gone, gives the others a few seconds to end by themselves,
and kills every process that was started with the variable in its environment, and all that these have started: Ray's
agents write their titles over their environments. Without `/proc` it can do nothing.

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
LOOK_S = 2.0
GRACE_S = 3.0
LONGEST_S = 30.0
LAST_WORDS = b"error: the run ended with Ray's node manager (raylet); resume it from its latest checkpoint\n"

Processes = dict[int, str]  # when each was started: numbers come again
Running = dict[int, tuple[int, str]]  # the parent of each, too


def running() -> Running:
    """The parent and the start of every process that has not ended."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *rest = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if state not in "ZX":
            found[int(process.name)] = int(parent), rest[17]
    return found


def marked_processes(variable: str, now: Running) -> Processes:
    """The processes of this user with the variable in the environment that they were started with."""
    found = {}
    for pid, (_, start) in now.items():
        try:
            if variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[pid] = start
        except OSError:  # it has ended, or is another user's
            continue
    return found


def family(members: Processes, now: Running) -> Processes:
    """Those of the members that run, and all that they have started."""
    found = {pid: start for pid, start in members.items() if pid in now and now[pid][1] == start}
    while children := {pid: now[pid][1] for pid in now if now[pid][0] in found and pid not in found}:
        found |= children
    return found


def with_newer(ours: Processes, variable: str) -> Processes:
    """Those of ours that run, and what has been started since."""
    now = running()
    return family(ours | marked_processes(variable, now), now)


def follow(parent: int, variable: str) -> tuple[Processes, bool]:
    """Waits for a word from the parent, or its end; returns the processes to end and whether there was a word."""
    ours: Processes = {}
    looked = -LOOK_S
    while os.getppid() == parent:
        if time.monotonic() - looked >= LOOK_S:
            ours = with_newer(ours, variable)
            looked = time.monotonic()
        if select.select([0], [], [], POLL_S)[0]:
            return ours, bool(os.read(0, 1))
    return ours, False


def without_node_manager(processes: Processes) -> bool:
    """Whether processes of Ray run, and not the one that holds them together."""
    commands = []
    for pid in processes:
        try:
            commands.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return bool(commands) and not any(b"raylet/raylet" in command for command in commands)


def main(variable: str) -> None:
    parent = os.getppid()
    ours, announced = follow(parent, variable)
    ours = with_newer(ours, variable)
    if not announced and without_node_manager(ours):
        os.write(2, LAST_WORDS)
    os.close(2)  # whoever reads what the parent wrote to the end need not wait for the reaper
    while os.getppid() == parent:
        time.sleep(POLL_S)
    time.sleep(GRACE_S)
    deadline = time.monotonic() + LONGEST_S
    while (ours := with_newer(ours, variable)) and time.monotonic() < deadline:
        for pid in ours:  # on a busy machine some have only just been started
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(sys.argv[1])
