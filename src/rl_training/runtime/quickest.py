"""Which backend `auto` means where environments are slow: asked once, when a run begins, and kept in its config."""

from __future__ import annotations

import multiprocessing
import os
import time

import numpy as np

from rl_training.envs.factory import EnvSpec, choose_backend, make_envs
from rl_training.envs.masks import is_masked
from rl_training.envs.sources import EnvSource, is_instance
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.timed import TimedEnvs
from rl_training.errors import EnvironmentFault
from rl_training.experiment.config import TrainConfig

HAND_OVER_S = 1e-4  # asking an environment in another process for a step and reading its answer, as measured
LEAST_GAIN = 3.0  # times that, below which the noise of a measurement would decide
PROBED_STEPS, PROBED_S = 20, 0.1


def with_quickest_backend(config: TrainConfig, env: EnvSource | None) -> tuple[TrainConfig, str | None]:
    """The config, in which slow environments get a process each, and what to tell of it.

    Only those that hide their state are moved: they begin new episodes at checkpoints wherever they are stepped, so
    that nothing but time depends on what was measured.
    """
    spec = config.env_spec(env)
    cores = min(os.cpu_count() or 1, config.num_envs)
    if cores == 1 or config.backend != "auto" or config.collect_ahead or not _may_move(spec):
        return config, None
    seconds = step_seconds(spec)
    if seconds is None or seconds * (1.0 - 1.0 / cores) < LEAST_GAIN * HAND_OVER_S:
        return config, None
    told = f"a step of {spec.name} takes {1e3 * seconds:.2g} ms: every environment gets a process (backend async)"
    return config.changed(backend="async"), told


def _may_move(spec: EnvSpec) -> bool:
    """Whether processes could step the environments: each makes its own, and knows what this one has imported."""
    is_forked = multiprocessing.get_start_method() == "fork" and not multiprocessing.current_process().daemon
    return is_forked and not spec.tasks and not is_instance(spec.source) and choose_backend(spec) == "sync"


def step_seconds(spec: EnvSpec) -> float | None:
    """Times an environment made for this; None for one that offers its state, or cannot tell."""
    envs = make_envs(spec, 1)
    try:
        is_single = isinstance(envs.envs if isinstance(envs, TimedEnvs) else envs, SyncEnvs)
        if not is_single or envs.restorable or is_masked(envs.spaces):
            return None
        envs.reset(0)
        envs.spaces.action.seed(0)
        actions = [np.asarray(envs.spaces.action.sample())[None] for _ in range(PROBED_STEPS)]
        times = [time.perf_counter()]
        while len(times) <= PROBED_STEPS and times[-1] - times[0] < PROBED_S:
            envs.step(actions[len(times) - 1])
            times.append(time.perf_counter())
        return float(np.median(np.diff(times)))  # others may have interrupted some
    except EnvironmentFault:  # training will meet it, and name it
        return None
    finally:
        envs.close()
