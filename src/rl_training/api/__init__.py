"""The managed classes: `from rl_training.api import PPO`."""

from rl_training.api import algorithms as _algorithms
from rl_training.api.agent import Agent

globals().update(_algorithms.MANAGED)

__all__ = ["Agent", *_algorithms.MANAGED]
