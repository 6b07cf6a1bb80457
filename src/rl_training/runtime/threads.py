"""Settings of a process that computes: how many threads it has, and that it keeps the memory that it frees."""

from __future__ import annotations

import ctypes
import os
import platform

import torch
from threadpoolctl import threadpool_limits

from rl_training.envs.types import Envs
from rl_training.models.grids import has_picture


def default_threads(envs: Envs) -> int:
    """Small networks, grids' too, lose time to a second thread; images gain, up to what `OMP_NUM_THREADS` allows."""
    if not has_picture(envs.spaces.observation):
        return 1
    allowed = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # a list has a number for each level
    cores = os.cpu_count() or 1
    return min(cores, int(allowed)) if allowed.isdecimal() and int(allowed) else cores


# glibc's mallopt: how large an allocation may be to come from the heap, and how much free heap the process keeps.
M_TRIM_THRESHOLD, KEPT_BYTES = -1, 256 * 2**20
M_MMAP_THRESHOLD, HEAP_BYTES = -3, 32 * 2**20


def prepare_process(threads: int) -> None:
    """Called before a process computes."""
    limit_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Every update allocates the megabytes again that the last one freed; kept pages need not be cleared anew."""
    glibc = ctypes.CDLL(None)
    glibc.mallopt(M_MMAP_THRESHOLD, HEAP_BYTES)
    glibc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def limit_threads(count: int) -> None:
    """For torch and for the BLAS that NumPy brings, which would take every core for a matrix of a few kilobytes."""
    torch.set_num_threads(count)
    threadpool_limits(limits=count, user_api="blas")
