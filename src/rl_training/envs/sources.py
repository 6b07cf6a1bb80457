"""An environment may be given as a Gymnasium id, a name of code, a callable, or an instance."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
from typing_extensions import TypeIs

from rl_training.envs.suites import registered
from rl_training.errors import EnvironmentFault
from rl_training.naming import PYTHON_PREFIX, import_named, names_code, python_name, search_folders

Instance = gym.Env | gym.vector.VectorEnv
EnvSource = str | Instance | Callable[..., Instance]


def is_instance(source: Any) -> TypeIs[Instance]:
    """Whether the source is an environment, and not something that makes one."""
    return isinstance(source, gym.Env | gym.vector.VectorEnv)


def source_name(source: EnvSource) -> str:
    """How errors call a source."""
    return config_name(source).removeprefix(PYTHON_PREFIX)


def config_name(source: EnvSource) -> str:
    """How a config names a source; one that is no text is asked for again when the config is read."""
    if isinstance(source, str):
        return source
    if not is_instance(source):
        return python_name(source)
    return PYTHON_PREFIX + (source.spec.id if source.spec is not None else type(source.unwrapped).__name__)


def maker(source: str) -> Callable[..., Instance]:
    """The callable that makes what a text names."""
    if source.startswith(PYTHON_PREFIX):
        name = source.removeprefix(PYTHON_PREFIX)
        raise EnvironmentFault(
            f"the environment was the Python object {name!r}, which no file can hold: pass it again as env=, "
            "or name it with --env file.py:factory"
        )
    if names_code(source):
        return import_named(source, "the environment factory", EnvironmentFault)
    if ":" in source:  # Gymnasium imports the module of `module:Id-v0`
        search_folders()
    registered(source)
    return partial(gym.make, source, disable_env_checker=True)


def takes_num_envs(make: Callable[..., Any]) -> bool:
    """Whether a callable makes as many environments as it is told to, in one `VectorEnv`."""
    try:
        return "num_envs" in inspect.signature(make).parameters
    except (TypeError, ValueError):  # some callables of C have no signature
        return False
