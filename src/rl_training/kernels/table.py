"""Which kernel takes the place of which plain function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

# A plain module, and the module that has its kernels; that one is imported when a plain function is first called.
ROOMS = {
    "rl_training.algorithms.a2c": "rl_training.kernels.updates",
    "rl_training.algorithms.appo": "rl_training.kernels.updates",
    "rl_training.algorithms.dqn": "rl_training.kernels.q_learning",
    "rl_training.algorithms.impala": "rl_training.kernels.updates",
    "rl_training.algorithms.optimizer": "rl_training.kernels.optimizers",
    "rl_training.algorithms.ppo": "rl_training.kernels.updates",
    "rl_training.algorithms.sac": "rl_training.kernels.critics",
    "rl_training.algorithms.trpo": "rl_training.kernels.updates",
    "rl_training.envs.vector": "rl_training.kernels.cartpole",
    "rl_training.models.actor_critic": "rl_training.kernels.policies",
    "rl_training.models.normed": "rl_training.kernels.normed",
    "rl_training.models.q_network": "rl_training.kernels.q_learning",
    "rl_training.models.rssm": "rl_training.kernels.rssm",
    "rl_training.ops.categorical": "rl_training.kernels.stochastic",
    "rl_training.ops.losses": "rl_training.kernels.returns",
    "rl_training.ops.returns": "rl_training.kernels.returns",
    "rl_training.search.search": "rl_training.kernels.planning",
}


@dataclass(frozen=True)
class Kernel:
    plain: Callable[..., Any]
    function: Callable[..., Any]
    when: Callable[..., Any]  # of a call's positional arguments; what is true and not True is handed to the function
    tolerance: float  # by which a number may differ from the plain function's

    @property
    def replaces(self) -> str:
        return f"{self.plain.__module__.removeprefix('rl_training.')}.{self.plain.__qualname__}"


KERNELS: dict[Callable[..., Any], Kernel | None] = {}  # None: a plain function that has none


def replaces(
    plain: Callable[..., Any], *, when: Callable[..., Any], tolerance: float
) -> Callable[[FunctionT], FunctionT]:
    """Makes the decorated function the kernel of a `replaceable` one.

    A condition may find what the kernel works with: what it returns in place of True is the kernel's first argument.
    """

    def register(function: FunctionT) -> FunctionT:
        KERNELS[plain] = Kernel(plain, function, when, tolerance)
        return function

    return register


def choose(plain: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The kernel that takes a call's place, or None."""
    try:
        kernel = KERNELS[plain]
    except KeyError:
        importlib.import_module(ROOMS[plain.__module__])
        kernel = KERNELS.setdefault(plain, None)
    if kernel is None or not (found := kernel.when(*args)):
        return None
    return kernel.function if found is True else partial(kernel.function, found)


def all_kernels() -> list[Kernel]:
    """Every kernel there is, by the name of what it replaces."""
    for room in sorted(set(ROOMS.values())):
        importlib.import_module(room)
    return sorted((kernel for kernel in KERNELS.values() if kernel is not None), key=lambda kernel: kernel.replaces)
