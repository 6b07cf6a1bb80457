"""How many threads a session computes with."""

from __future__ import annotations

import os

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


def limit_threads(count: int) -> None:
    """For torch and for the BLAS that NumPy brings, which would take every core for a matrix of a few kilobytes."""
    torch.set_num_threads(count)
    threadpool_limits(limits=count, user_api="blas")
