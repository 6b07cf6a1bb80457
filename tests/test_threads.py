"""Settings of a process that computes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LOOP = """
import resource
import numpy as np
{first}

def faults_of(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        np.ones(2**20, dtype=np.float32)  # 4 MiB, 1,024 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of(20)
arrays = [np.ones(2**20, dtype=np.float32) for _ in range(8)]
del arrays  # what is freed in one piece at the heap's end is otherwise given back
print(faults_of(50))
"""
PREPARE = "from rl_training.runtime.threads import prepare_process\nprepare_process(1)"


def page_faults(first: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", LOOP.format(first=first)], text=True))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide for themselves")
def test_pages_of_freed_arrays_are_not_asked_of_the_kernel_again() -> None:
    assert page_faults(PREPARE) < 100 < page_faults("")
