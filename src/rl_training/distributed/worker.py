"""The worker's side: the same `LocalCollector` as at home, with a clock on its environments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from ctypes import c_double
from dataclasses import replace
from typing import Any

import torch

from rl_training.algorithms.params import LiveParams
from rl_training.data.fragments import Fragment, to_fragment
from rl_training.data.trees import tree_map
from rl_training.envs.factory import make_envs
from rl_training.envs.sources import EnvSource
from rl_training.envs.timed import TimedEnvs
from rl_training.envs.types import Spaces
from rl_training.experiment.config import TrainConfig
from rl_training.kernels import Mode, using
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.policy import PolicySnapshot
from rl_training.runtime.session import seed_globals
from rl_training.runtime.threads import default_threads, prepare_process


def build_policy(config: TrainConfig, spaces: Spaces) -> Any:
    """One whose weights are still to come, on the CPU, wherever the learner's are."""
    params = LiveParams(config.parsed_params().params)
    return config.learner_class().build_seeded(params, spaces, seed=0, device=torch.device("cpu")).policy


def to_wire(snapshot: PolicySnapshot) -> PolicySnapshot:
    """Replaces tensors by arrays, which Ray keeps once for all processes of a machine."""
    return replace(snapshot, weights=tree_map(lambda tensor: tensor.detach().cpu().numpy(), snapshot.weights))


def from_wire(snapshot: PolicySnapshot) -> PolicySnapshot:
    """Copies the arrays to tensors, because what lies in the object store cannot be written to."""
    return replace(snapshot, weights=tree_map(lambda array: torch.from_numpy(array.copy()), snapshot.weights))


class CollectingWorker:
    """An actor's class; Ray is not needed to know it."""

    envs: TimedEnvs
    collector: LocalCollector
    kernels: Mode

    def __init__(self, busy_since: c_double | None = None) -> None:
        self._busy_since = busy_since

    def start(self, config: TrainConfig, env: EnvSource | None, num_envs: int, seed: int, index: int = 0) -> None:
        """Not the constructor: what goes wrong here reaches the driver as the error that it is."""
        seed_globals(seed)
        self.kernels = config.kernels
        self.envs = TimedEnvs(make_envs(config.env_spec(env), num_envs), busy_since=self._busy_since)
        prepare_process(config.threads or default_threads(self.envs))
        policy = build_policy(config, self.envs.spaces)
        reads = config.learner_class().reads
        self.collector = LocalCollector(self.envs, policy, seed=seed, source=index, reads=reads)

    def collect(self, num_steps: int, snapshot: PolicySnapshot) -> tuple[Fragment, float]:
        """(fragment, seconds it took)."""
        began = time.perf_counter()
        self.collector.publish(from_wire(snapshot))
        with using(self.kernels):
            fragment = to_fragment(self.collector.collect(num_steps))
        return fragment, time.perf_counter() - began

    def restart(self, seed: int) -> None:
        self.collector.restart(seed)

    def state_dict(self) -> dict[str, Any]:
        return self.collector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state)

    def busy_seconds(self) -> float:
        return self.envs.busy_seconds()

    def close(self) -> None:
        self.collector.close()
