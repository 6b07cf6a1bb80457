"""The managed classes: `from rl_training.api import PPO`."""

from rl_training.api import algorithms as _algorithms
from rl_training.api.agent import Agent

globals().update(_algorithms.MANAGED)

__all__ = ["Agent", *_algorithms.MANAGED]


def __getattr__(name: str) -> type[Agent]:
    """The class of an algorithm that was registered later, or that a plugin brings."""
    try:
        return _algorithms.managed(name)
    except StopIteration:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
