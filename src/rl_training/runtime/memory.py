"""How much memory a run needs, told before it starts; one that the machine does not have is refused."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training.algorithms.muzero import PlannerParams
from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.replay import ReplayParams
from rl_training.data.trees import tree_leaves, zeros_for
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.models.sampled import number_of_samples

BYTES_PER_WEIGHT = 16  # the weight, its gradient and two moments, each of 4 bytes
BYTES_PER_NODE = 64  # of a search tree, for each action
ROW_OVERHEAD = 32  # reward, ends, value and log-prob
BEYOND_COUNTING = 2**62


class Need(NamedTuple):
    """One part of a run: the memory that it takes, and the keys that decide it."""

    part: str
    bytes: int
    keys: str


def memory_needs(config: TrainConfig, spaces: Spaces) -> list[Need]:
    """The parts whose size the config decides; interpreter, libraries and environments come on top."""
    params: Any = config.parsed_params().params
    row, choices = row_bytes(spaces), num_actions(spaces)
    if samples := _samples(params, spaces):
        choices = samples
        row += samples * (4 + spaces.action.sample().nbytes)
    needs = [
        Need("networks", network_bytes(config, spaces), "the sizes of the networks"),
        Need("rollouts", params.rollout_steps * config.num_envs * row, "rollout_steps, num_envs"),
    ]
    if isinstance(params, ReplayParams):
        needs.append(Need("replay", params.replay_capacity * row, "replay_capacity"))
        steps = getattr(params, "unroll_steps", 0) + getattr(params, "context_steps", 0)
        length = getattr(params, "sequence_length", steps) + 1
        needs.append(Need("batches", params.batch_size * length * row, "batch_size"))
    if hasattr(params, "num_simulations"):
        nodes = config.num_envs * (params.num_simulations + 1) * choices
        needs.append(Need("search", nodes * BYTES_PER_NODE, "num_simulations, num_envs"))
    return needs


def refuse_too_much(config: TrainConfig, spaces: Spaces) -> None:
    """Raises ConfigError, with the figures, for a run that cannot fit."""
    free = free_bytes()
    needs = memory_needs(config, spaces)
    if free is None or sum(need.bytes for need in needs) <= free:
        return
    largest = max(needs, key=lambda need: need.bytes)
    raise ConfigError(f"{largest.keys}: not enough memory; the run needs {told(needs)}, {readable(free)} are free")


def told(needs: list[Need]) -> str:
    return ", ".join(f"{need.part} {readable(need.bytes)}" for need in needs)


def readable(count: int) -> str:
    if count >= BEYOND_COUNTING:
        return "more than any machine has"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def row_bytes(spaces: Spaces) -> int:
    """One row: an observation, an action with a probability for each choice, and the numbers beside them."""
    sizes = [leaf.nbytes for space in spaces for leaf in tree_leaves(zeros_for(space, (1,)))]
    return sum(sizes) + 4 * num_actions(spaces) + ROW_OVERHEAD


def _samples(params: Any, spaces: Spaces) -> int | None:
    """The actions that a node of a planner's search samples, if it does."""
    is_planner = isinstance(params, PlannerParams) and params.chooses_latents
    return number_of_samples(spaces.action, params.sampled_actions) if is_planner else None


def num_actions(spaces: Spaces) -> int:
    return int(getattr(spaces.action, "n", 1)) if not spaces.action.shape else 1


def network_bytes(config: TrainConfig, spaces: Spaces) -> int:
    """Built without memory, on torch's device of shapes; 0 for a network that cannot be."""
    params = LiveParams(config.parsed_params().params)
    try:
        algorithm = config.learner_class().build_seeded(params, spaces, seed=0, device=torch.device("meta"))
    except (RuntimeError, ConfigError) as error:  # a user's own may refuse to be made without memory
        return BEYOND_COUNTING if "overflow" in str(error) else 0
    return BYTES_PER_WEIGHT * sum(p.numel() for p in algorithm.policy.parameters())


def free_bytes() -> int | None:
    """Counts what this process may still take, by the machine, its container and its own limit; None if unknown."""
    limits = [found for found in (_machine_free(), _container_free(), _process_free()) if found is not None]
    return min(limits) if limits else None


def _machine_free() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0)) if "MemAvailable" in kilobytes else None


def _container_free() -> int | None:
    try:
        own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].strip("/")
        folder = next(f for f in (Path("/sys/fs/cgroup") / own, Path("/sys/fs/cgroup")) if (f / "memory.max").is_file())
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except (OSError, StopIteration):
        return None
    return int(limit) - int(used) if limit.isdigit() else None


def _process_free() -> int | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return limit
    return max(limit - pages * resource.getpagesize(), 0)
