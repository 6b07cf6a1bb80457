"""The one place where environments are made: by Gymnasium id, `package.module:factory`, or a callable."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import gymnasium as gym

from rl_training.envs.answers import check_spaces
from rl_training.envs.multitask import MultiTaskEnvs, split_evenly
from rl_training.envs.processes import AsyncEnvs
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.timed import TimedEnvs
from rl_training.envs.types import Envs, Spaces
from rl_training.envs.vector import VectorEnvs, autoreset_is_same_step
from rl_training.envs.wrappers import apply_wrappers, parse_wrappers
from rl_training.errors import EnvironmentFault, import_extra

Backend = Literal["auto", "sync", "async", "native", "atari", "envpool"]
EnvSource = str | Callable[..., gym.Env]
PYTHON_PREFIX = "python:"  # how a config names an environment that was a callable


@dataclass(frozen=True)
class EnvSpec:
    """Everything that says which environments to make, but how many."""

    source: EnvSource
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[str | Mapping[str, Any]] = ()
    backend: Backend = "auto"
    tasks: Sequence[str] = ()  # several sources at once, in place of the one
    step_timeout_s: float = 0.0  # an environment that takes longer hangs; 0: it may take as long as it likes
    restarts: int = 0  # how often an environment whose process died is replaced

    @property
    def name(self) -> str:
        return self.source if isinstance(self.source, str) else source_name(self.source)

    @property
    def has_time_limit(self) -> bool:
        """Whether every episode is known to end by itself."""
        if any(name == "time_limit" for name, _ in parse_wrappers(self.wrappers)):
            return True
        sources: Sequence[EnvSource] = self.tasks or [self.source]
        registered = [_registered(source) for source in sources if isinstance(source, str)]
        return bool(registered) and all(spec is not None and spec.max_episode_steps for spec in registered)


def source_name(source: Callable[..., gym.Env]) -> str:
    """How a callable is called in configs and errors."""
    return getattr(source, "__name__", type(source).__name__)


def make_env(spec: EnvSpec, **kwargs: Any) -> gym.Env:
    """A single environment with its wrappers; every failure to make one names it."""
    make = spec.source if callable(spec.source) else _maker(spec.source)
    with _named(spec):
        env = make(**{**spec.kwargs, **kwargs})
    if not isinstance(env, gym.Env):
        raise EnvironmentFault(f"{spec.name!r} made {type(env).__name__}, which is not a gymnasium.Env")
    env = apply_wrappers(env, spec.wrappers)
    check_spaces(spec.name, env.observation_space, env.action_space)
    return env


@contextmanager
def _named(spec: EnvSpec) -> Iterator[None]:
    """User code may raise anything while it makes an environment; whatever it is, the environment is named."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"cannot make environment {spec.name!r}: {type(error).__name__}: {error}") from error


def make_envs(spec: EnvSpec, num_envs: int) -> Envs:
    """The environments behind the backend that the spec names, or the quickest that fits."""
    if spec.tasks:
        counts = split_evenly(num_envs, spec.tasks)
        groups = [replace(spec, source=task, tasks=()) for task in spec.tasks]
        return MultiTaskEnvs(spec.tasks, [make_envs(*group) for group in zip(groups, counts, strict=True)])
    backend = choose_backend(spec)
    envs = _BACKENDS[backend](spec, num_envs)
    # Environments in other processes are waited for, and no longer than they may take.
    return TimedEnvs(envs, spec.step_timeout_s) if spec.step_timeout_s and backend != "async" else envs


def choose_backend(spec: EnvSpec) -> str:
    """`auto` takes the environment's own vector form where nothing has to wrap the single one."""
    if spec.backend != "auto":
        return spec.backend
    if not isinstance(spec.source, str):
        return "sync"
    registered = _registered(spec.source)
    if registered is not None and str(registered.entry_point).startswith("ale_py"):
        if spec.wrappers:
            raise EnvironmentFault(
                f"{spec.name} comes preprocessed and takes no wrappers; backend sync gives raw frames"
            )
        return "atari"
    if registered is None or spec.wrappers:
        return "sync"
    return "native" if registered.vector_entry_point else "sync"


def _maker(source: str) -> Callable[..., gym.Env]:
    if source.startswith(PYTHON_PREFIX):
        name = source.removeprefix(PYTHON_PREFIX)
        raise EnvironmentFault(f"the environment was the Python callable {name!r}: pass it again as env=")
    module, _, attribute = source.partition(":")
    # Gymnasium writes `module:EnvId-v0` as well; a factory is an attribute, and an id has a version.
    if attribute and attribute.isidentifier():
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise EnvironmentFault(f"cannot import the environment factory {source!r}: {error}") from error
    _registered(source)
    return partial(gym.make, source, disable_env_checker=True)


def _registered(env_id: str) -> Any:
    if env_id.startswith("ALE/"):
        gym.register_envs(import_extra("ale_py", "atari"))
    return gym.registry.get(env_id)


def _sync(spec: EnvSpec, num_envs: int) -> Envs:
    return SyncEnvs([partial(make_env, spec)] * num_envs)


def _async(spec: EnvSpec, num_envs: int) -> Envs:
    return AsyncEnvs([partial(make_env, spec)] * num_envs, timeout_s=spec.step_timeout_s, restarts=spec.restarts)


def _native(spec: EnvSpec, num_envs: int) -> Envs:
    _needs_id(spec, "native")
    registered = _registered(str(spec.source))
    if registered is not None and registered.vector_entry_point is None:
        raise EnvironmentFault(f"{spec.name} has no vector form of its own; use backend sync")
    with _named(spec):
        envs = gym.make_vec(str(spec.source), num_envs, vectorization_mode="vector_entry_point", **spec.kwargs)
    envs = envs.unwrapped
    if isinstance(envs.single_action_space, gym.spaces.Discrete):
        # CartPole spends a quarter of its step on this check. A head made for the space samples nothing else.
        envs.action_space.contains = lambda x: True  # type: ignore[method-assign]
    return VectorEnvs(envs, same_step=autoreset_is_same_step(envs), spaces=_single_spaces(envs))


def _atari(spec: EnvSpec, num_envs: int) -> Envs:
    """ALE's C++ vector environment: preprocessing as in Machado et al. (2018), frames as `[stack, 84, 84]` bytes."""
    _needs_id(spec, "atari")
    vector_env = import_extra("ale_py.vector_env", "atari")
    registered = _registered(str(spec.source))
    if registered is None:
        raise EnvironmentFault(f"unknown Atari environment {spec.name!r}; ids look like 'ALE/Pong-v5'")
    from_id = {"repeat_action_probability": registered.kwargs["repeat_action_probability"]}
    options = {**from_id, "num_threads": 1, **spec.kwargs}
    with _named(spec):
        envs = vector_env.AtariVectorEnv(registered.kwargs["game"], num_envs, **options)
    return VectorEnvs(envs, same_step=autoreset_is_same_step(envs), spaces=_single_spaces(envs))


def _envpool(spec: EnvSpec, num_envs: int) -> Envs:
    _needs_id(spec, "envpool")
    envpool = import_extra("envpool", "envpool")
    options = {"num_envs": num_envs, "num_threads": 1, **spec.kwargs}
    return _EnvPoolEnvs(partial(envpool.make_gymnasium, str(spec.source), **options))


class _EnvPoolEnvs(VectorEnvs):
    """EnvPool takes its seed when it is made, so every reset makes it anew."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        envs = make(seed=0)
        super().__init__(envs, same_step=False, spaces=Spaces(envs.observation_space, envs.action_space))
        self.restorable = False

    def reset(self, seed: int) -> Any:
        self.envs.close()
        self.envs = self._make(seed=seed)
        self._ended[:] = False
        self._last_obs, _ = self._guard(self.envs.reset)
        return self._last_obs


def _single_spaces(envs: gym.vector.VectorEnv) -> Spaces:
    return Spaces(envs.single_observation_space, envs.single_action_space)


def _needs_id(spec: EnvSpec, backend: str) -> None:
    if not isinstance(spec.source, str) or spec.wrappers:
        raise EnvironmentFault(f"backend {backend!r} needs a Gymnasium id and no wrappers; use backend 'sync'")


_BACKENDS: dict[str, Callable[[EnvSpec, int], Envs]] = {
    "sync": _sync,
    "async": _async,
    "native": _native,
    "atari": _atari,
    "envpool": _envpool,
}
