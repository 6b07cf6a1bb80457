"""`RayLearners`: processes that share the work of every update with the learner in this one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rl_training.data.fragments import Fragment, side_by_side, to_fragment
from rl_training.data.rollout import Rollout
from rl_training.distributed.connection import LOST, connect, processors, ray
from rl_training.distributed.peers import RankedPeers
from rl_training.envs.types import Spaces
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.kernels import Mode, using
from rl_training.runtime.learner import Learner
from rl_training.runtime.session import make_learner
from rl_training.runtime.threads import prepare_process

PATIENCE = timedelta(minutes=5)  # for the slowest learner


class LearningPeer:
    """An actor's class: it does with every rollout what the driver's learner does."""

    learner: Learner
    kernels: Mode

    def start(self, config: TrainConfig, spaces: Spaces, *, address: str, rank: int) -> None:
        prepare_process(config.threads or 1)
        self.kernels = config.kernels
        self.learner = make_learner(config, spaces)
        join(self.learner, address, rank=rank, learners=config.learners)

    def learn(self, fragment: Fragment, controls: Mapping[str, float]) -> None:
        self.learner.params.move(controls)
        rollout = side_by_side([fragment], self.learner.algorithm.policy.device)
        with using(self.kernels):
            for _ in self.learner.learn(rollout):
                pass

    def begin_episodes(self) -> None:
        self.learner.begin_episodes()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state)


class RayLearners:
    """The driver's learner is the first of `config.learners`; it alone is logged and saved."""

    def __init__(self, config: TrainConfig, learner: Learner) -> None:
        connect(config.ray_address)
        gpus = 1 if learner.algorithm.policy.device.type == "cuda" else 0
        options = {"num_cpus": processors(config.ray_address), "num_gpus": gpus}
        self._peers = [ray.remote(**options)(LearningPeer).remote() for _ in range(config.learners - 1)]
        address = f"tcp://{ray.util.get_node_ip_address()}:{_free_port()}"
        started = [
            peer.start.remote(config, learner.spaces, address=address, rank=rank)
            for rank, peer in enumerate(self._peers, start=1)
        ]
        join(learner, address, rank=0, learners=config.learners)
        self._under_way: list[Any] = started
        self.settle()

    def send(self, rollout: Rollout, controls: Mapping[str, float]) -> None:
        """Has all others learn from the rollout, while the driver's learner does."""
        fragment = ray.put(to_fragment(rollout))
        self._under_way = [peer.learn.remote(fragment, dict(controls)) for peer in self._peers]

    def settle(self) -> None:
        """Waits until all are done with what they were last asked."""
        try:
            ray.get(self._under_way)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except LOST as error:
            raise RLTrainingError(f"a learner died; resume the run from its latest checkpoint: {error}") from error

    def begin_episodes(self) -> None:
        ray.get([peer.begin_episodes.remote() for peer in self._peers])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ray.get([peer.load_state_dict.remote(state) for peer in self._peers])

    def close(self) -> None:
        for peer in self._peers:
            ray.kill(peer)
        dist.destroy_process_group()


def join(learner: Learner, address: str, *, rank: int, learners: int) -> None:
    """Makes the learner's updates shared ones; returns when all have come."""
    backend = "nccl" if learner.algorithm.policy.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=learners, timeout=PATIENCE)
    learner.algorithm.join(RankedPeers(rank, learners))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
