"""The one place where environments are made, whatever they were given as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import gymnasium as gym

from rl_training.blame import told
from rl_training.envs.answers import check_spaces
from rl_training.envs.envpool import EnvPoolEnvs
from rl_training.envs.masks import with_action_masks, with_vector_masks
from rl_training.envs.multitask import MultiTaskEnvs, split_evenly
from rl_training.envs.observations import with_readable_observations
from rl_training.envs.processes import AsyncEnvs
from rl_training.envs.sources import EnvSource, is_instance, maker, source_name, takes_num_envs
from rl_training.envs.suites import is_for_envpool, registered
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.timed import TimedEnvs
from rl_training.envs.types import Envs, Spaces
from rl_training.envs.vector import VectorEnvs, autoreset_is_same_step
from rl_training.envs.wrappers import apply_wrappers, parse_wrappers
from rl_training.errors import EnvironmentFault, RLTrainingError, import_extra

Backend = Literal["auto", "sync", "async", "native", "atari", "envpool"]


@dataclass(frozen=True)
class EnvSpec:
    """Everything that says which environments to make, but how many."""

    source: EnvSource
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Any] = ()
    backend: Backend = "auto"
    tasks: Sequence[str] = ()  # several sources at once, in place of the one
    step_timeout_s: float = 0.0  # an environment that takes longer hangs; 0: it may take as long as it likes
    restarts: int = 0  # how often an environment whose process died is replaced

    @property
    def name(self) -> str:
        return source_name(self.source)

    @property
    def has_time_limit(self) -> bool:
        """Whether every episode is known to end by itself."""
        if any(name == "time_limit" for name, _ in parse_wrappers(self.wrappers)):
            return True
        sources: Sequence[EnvSource] = self.tasks or [self.source]
        known = [source.spec if is_instance(source) else registered(source) for source in sources]
        return all(spec is not None and spec.max_episode_steps for spec in known)


def make_env(spec: EnvSpec, **kwargs: Any) -> gym.Env:
    """A single environment with its wrappers; every failure to make one names it."""
    return _single(spec, _made(spec, **kwargs))


def _single(spec: EnvSpec, env: Any) -> gym.Env:
    if not isinstance(env, gym.Env):
        raise EnvironmentFault(f"{spec.name!r} made {type(env).__name__}, which is not a gymnasium.Env")
    env = with_action_masks(apply_wrappers(with_readable_observations(env), spec.wrappers))
    check_spaces(spec.name, env.observation_space, env.action_space)
    return env


def _made(spec: EnvSpec, num_envs: int | None = None, **kwargs: Any) -> Any:
    """The source itself if it is an environment, or else what it makes; it is told `num_envs` if it asks for it."""
    given = {**spec.kwargs, **kwargs}
    source = maker(spec.source) if isinstance(spec.source, str) else spec.source
    if is_instance(source):
        if given:
            keys = ", ".join(given)
            raise EnvironmentFault(f"{spec.name!r} was made before it could be given {keys}; pass a callable")
        return source
    if num_envs is not None and takes_num_envs(source):
        given = {"num_envs": num_envs, **given}
    with _named(spec):
        return source(**given)


@contextmanager
def _named(spec: EnvSpec) -> Iterator[None]:
    """User code may raise anything while it makes an environment; whatever it is, the environment is named."""
    try:
        yield
    except RLTrainingError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"cannot make environment {spec.name!r}: {told(error)}") from error


def make_envs(spec: EnvSpec, num_envs: int) -> Envs:
    """The environments behind the backend that the spec names, or the quickest that fits.

    There are `num_envs` of them, unless the source is an instance or makes a `VectorEnv` of another size.
    """
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
    entry = registered(spec.source)
    if entry is not None and str(entry.entry_point).startswith("ale_py"):
        if spec.wrappers:
            raise EnvironmentFault(
                f"{spec.name} comes preprocessed and takes no wrappers; backend sync gives raw frames"
            )
        return "atari"
    if is_for_envpool(spec.source):
        return "envpool"
    if entry is None or spec.wrappers:
        return "sync"
    return "native" if entry.vector_entry_point else "sync"


def _sync(spec: EnvSpec, num_envs: int) -> Envs:
    first = _made(spec, num_envs)
    if isinstance(first, gym.vector.VectorEnv):
        return _vector(spec, first)
    others = 0 if is_instance(spec.source) else num_envs - 1
    return SyncEnvs([partial(_single, spec, first), *[partial(make_env, spec)] * others])


def _vector(spec: EnvSpec, envs: gym.vector.VectorEnv) -> Envs:
    """A vector environment of the user's own."""
    if spec.wrappers:
        raise EnvironmentFault(f"{spec.name!r} is a VectorEnv, and wrappers are for single environments; wrap it first")
    check_spaces(spec.name, *_single_spaces(envs))
    return _adapted(with_vector_masks(envs))


def _async(spec: EnvSpec, num_envs: int) -> Envs:
    if is_instance(spec.source):
        raise EnvironmentFault(f"backend 'async' makes environments, and {spec.name!r} is one; pass a callable")
    return AsyncEnvs([partial(make_env, spec)] * num_envs, timeout_s=spec.step_timeout_s, restarts=spec.restarts)


def _native(spec: EnvSpec, num_envs: int) -> Envs:
    _needs_id(spec, "native")
    entry = registered(spec.source)
    if entry is not None and entry.vector_entry_point is None:
        raise EnvironmentFault(f"{spec.name} has no vector form of its own; use backend sync")
    with _named(spec):
        envs = gym.make_vec(str(spec.source), num_envs, vectorization_mode="vector_entry_point", **spec.kwargs)
    envs = envs.unwrapped
    if isinstance(envs.single_action_space, gym.spaces.Discrete):
        # CartPole spends a quarter of its step on this check. A head made for the space samples nothing else.
        envs.action_space.contains = lambda x: True  # type: ignore[method-assign]
    return _adapted(with_vector_masks(envs))


def _atari(spec: EnvSpec, num_envs: int) -> Envs:
    """ALE's C++ vector environment: preprocessing as in Machado et al. (2018), frames as `[stack, 84, 84]` bytes."""
    _needs_id(spec, "atari")
    vector_env = import_extra("ale_py.vector_env", "atari")
    entry = registered(spec.source)
    if entry is None:
        raise EnvironmentFault(f"unknown Atari environment {spec.name!r}; ids look like 'ALE/Pong-v5'")
    from_id = {"repeat_action_probability": entry.kwargs["repeat_action_probability"]}
    options = {**from_id, "num_threads": 1, **spec.kwargs}
    with _named(spec):
        envs = vector_env.AtariVectorEnv(entry.kwargs["game"], num_envs, **options)
    return _adapted(envs)


def _envpool(spec: EnvSpec, num_envs: int) -> Envs:
    _needs_id(spec, "envpool")
    with _named(spec):
        return EnvPoolEnvs(str(spec.source), num_envs, spec.kwargs)


def _adapted(envs: gym.vector.VectorEnv) -> Envs:
    return VectorEnvs(envs, same_step=autoreset_is_same_step(envs), spaces=_single_spaces(envs))


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
