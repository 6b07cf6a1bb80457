"""Suites of environments: which package registers an id, and which extra brings that package.

The table is fixed. An id, also one that a received file names, chooses a row of it and nothing else: no package is
imported that does not stand here.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, NamedTuple

import gymnasium as gym

from rl_training.errors import import_extra

ENVPOOL = "envpool"
ENVPOOL_PREFIX = "envpool/"
OTHERS = "others"


class Suite(NamedTuple):
    """A family of ids, known by how they begin or by where Gymnasium finds them."""

    name: str
    prefixes: tuple[str, ...] = ()
    entry_point: str = ""
    module: str = ""  # has to be there for the environments to be made
    extra: str = ""  # brings the module
    registers: str = ""  # the `module` that registers the ids when it is imported, or the `module:function` that does

    @property
    def is_installed(self) -> bool:
        return not self.module or is_there(self.module)

    def owns(self, env_id: str) -> bool:
        spec = gym.registry.get(env_id)
        found_there = self.entry_point and spec is not None and str(spec.entry_point).startswith(self.entry_point)
        return bool(found_there) or env_id.startswith(self.prefixes)

    def register(self) -> None:
        """Lets Gymnasium know the suite's ids; where the suite is not installed, the error names the extra."""
        if self.module:
            import_extra(self.module, self.extra)
        if not self.registers or any(env_id.startswith(self.prefixes) for env_id in gym.registry):
            return
        module, _, function = self.registers.partition(":")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MuJoCo's window library complains where there is no screen
            imported = import_extra(module, self.extra)
        if function:
            getattr(imported, function)()


SUITES = (
    Suite("classic control", entry_point="gymnasium.envs.classic_control"),
    Suite("toy text", entry_point="gymnasium.envs.toy_text"),
    Suite("box2d", entry_point="gymnasium.envs.box2d", module="Box2D", extra="box2d"),
    Suite("mujoco", entry_point="gymnasium.envs.mujoco", module="mujoco", extra="mujoco"),
    Suite("atari", ("ALE/",), module="ale_py", extra="atari", registers="ale_py"),
    Suite("minigrid", ("MiniGrid-", "BabyAI-"), module="minigrid", extra="minigrid", registers="minigrid"),
    Suite("minatar", ("MinAtar/",), module="minatar", extra="minatar", registers="minatar.gym:register_envs"),
    Suite("popgym", ("popgym-",), module="popgym", extra="popgym", registers="popgym"),
    Suite("dm_control", ("dm_control/",), module="dm_control", extra="dm_control", registers="shimmy"),
)


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def suite_of(env_id: str) -> Suite | None:
    """The suite that an id belongs to; None for an id of EnvPool, or one that somebody else registered."""
    return next((suite for suite in SUITES if suite.owns(env_id)), None)


def registered(env_id: Any) -> Any:
    """Gymnasium's row of an id, after the package that the table names for it was imported; None for anything else."""
    if not isinstance(env_id, str):
        return None
    suite = suite_of(env_id)
    if suite is not None:
        suite.register()
    return gym.registry.get(env_id)


def is_for_envpool(env_id: str) -> bool:
    """Whether EnvPool steps an id unless another backend is asked for: it is named so, or EnvPool alone knows it."""
    if env_id.startswith(ENVPOOL_PREFIX):
        return True
    if ":" in env_id or "/" in env_id or registered(env_id) is not None or not is_there(ENVPOOL):
        return False
    return env_id in envpool_ids()


def envpool_ids() -> list[str]:
    return sorted(import_extra(ENVPOOL, ENVPOOL).list_all_envs())


def installed_ids() -> dict[str, list[str]]:
    """The ids that can be made here, by suite; those that no suite of the table owns are the `others`."""
    found: dict[str, list[str]] = {}
    for suite in SUITES:
        if suite.is_installed:
            suite.register()
    for env_id in sorted(gym.registry):
        owner = suite_of(env_id)
        if owner is None or owner.is_installed:
            found.setdefault(owner.name if owner else OTHERS, []).append(env_id)
    if is_there(ENVPOOL):
        found[ENVPOOL] = [ENVPOOL_PREFIX + env_id for env_id in envpool_ids()]
    return found
