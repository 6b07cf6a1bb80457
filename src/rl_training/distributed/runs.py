"""Several runs at a time, as many as Ray has processors for; each is a local run in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_training.distributed.connection import LOST, connect, ray
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.manager import train_run
from rl_training.runtime.workflows import TrainResult


def train_in_parallel(configs: Sequence[TrainConfig]) -> Iterator[TrainResult]:
    """Results in the order of the configs; a run that fails raises its error after those before it."""
    connect(configs[0].ray_address)
    train = ray.remote(num_cpus=1, max_retries=0)(_train)
    # A worker's working directory is not the user's.
    homes = [str(Path(config.output_dir).absolute()) for config in configs]
    runs = [
        train.remote(config.in_one_process().model_copy(update={"output_dir": home}))
        for config, home in zip(configs, homes, strict=True)
    ]
    for config, run in zip(configs, runs, strict=True):
        try:
            yield ray.get(run)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (*LOST, ray.exceptions.WorkerCrashedError) as error:
            raise RLTrainingError(f"the process of seed {config.seed} died: {error}") from error


def _train(config: TrainConfig) -> TrainResult:
    return train_run(config)
