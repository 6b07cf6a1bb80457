"""Reading and restoring an environment's state, for environments that offer it.

Those are: classic control, MuJoCo, ALE, and any environment with the package's protocol: `state_dict()` returns a
tree of arrays, numbers and strings, `load_state_dict(tree)` restores it. A wrapper that may hide state of its own
makes the environment one that does not offer its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import wrappers as gw

from rl_training.envs.masks import ActionMasks, IgnoredActionMasks


@runtime_checkable
class Restorable(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


CLASSIC_FIELDS = ("state", "steps", "prev_done", "steps_beyond_terminated", "last_u")
# MuJoCo derives these from the state before its last substep, and Ant's and Humanoid's rewards begin with them.
MUJOCO_DERIVED = ("xpos", "xquat", "xipos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator", "sensordata")
STATELESS_WRAPPERS = (
    ActionMasks,
    IgnoredActionMasks,
    gw.OrderEnforcing,
    gw.PassiveEnvChecker,
    gw.RescaleAction,
    gw.ClipAction,
    gw.TransformObservation,
    gw.TransformReward,
    gw.FlattenObservation,
)


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    return dict(generator.bit_generator.state)


def set_generator_state(generator: np.random.Generator, state: Mapping[str, Any]) -> None:
    generator.bit_generator.state = dict(state)


def can_restore(env: gym.Env | gym.vector.VectorEnv) -> bool:
    """Whether `read_state` captures everything that decides the future of the environment."""
    if isinstance(env, gym.Wrapper):
        known = isinstance(env, Restorable) or type(env) in (*STATELESS_WRAPPERS, gw.TimeLimit)
        return known and can_restore(env.env)
    return isinstance(env, Restorable) or _kind(env) is not None


def read_state(env: Any) -> dict[str, Any]:
    """The state of the environment and of its wrappers, outermost first."""
    state: dict[str, Any] = {}
    if isinstance(env, gym.Wrapper):
        if isinstance(env, Restorable):
            state["wrapper"] = env.state_dict()
        elif isinstance(env, gw.TimeLimit):
            state["wrapper"] = {"elapsed_steps": env._elapsed_steps}
        return state | {"env": read_state(env.env)}
    if isinstance(env, Restorable):
        state["own"] = env.state_dict()
    else:
        state[str(_kind(env))] = _READERS[str(_kind(env))](env)
    return state | {"rng": generator_state(env.np_random)}


def write_state(env: Any, state: Mapping[str, Any]) -> None:
    """Restores what `read_state` read, into an environment that was reset once."""
    if isinstance(env, gym.Wrapper):
        if isinstance(env, Restorable):
            env.load_state_dict(state["wrapper"])
        elif isinstance(env, gw.TimeLimit):
            env._elapsed_steps = state["wrapper"]["elapsed_steps"]
        write_state(env.env, state["env"])
        return
    set_generator_state(env.np_random, state["rng"])
    if isinstance(env, Restorable):
        env.load_state_dict(state["own"])
    else:
        _WRITERS[str(_kind(env))](env, state[str(_kind(env))])


def _kind(env: Any) -> str | None:
    """Which of the known families the bare environment is of; a subclass of one may hide more, and is not."""
    families = {"gymnasium.envs.classic_control": "classic", "gymnasium.envs.mujoco": "mujoco", "ale_py.env": "ale"}
    module = type(env).__module__
    return next((kind for package, kind in families.items() if f"{module}.".startswith(f"{package}.")), None)


def _read_classic(env: Any) -> dict[str, Any]:
    fields = {name: vars(env)[name] for name in CLASSIC_FIELDS if name in vars(env)}
    return {
        name: np.array(value) if isinstance(value, (tuple, np.ndarray)) else value for name, value in fields.items()
    }


def _write_classic(env: Any, state: Mapping[str, Any]) -> None:
    known = state.keys() & set(CLASSIC_FIELDS)  # a received state sets no other attribute
    vars(env).update(
        {name: np.array(state[name]) if isinstance(state[name], np.ndarray) else state[name] for name in known}
    )


def _read_mujoco(env: Any) -> dict[str, Any]:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    return {"integration": state} | {name: getattr(env.data, name).copy() for name in MUJOCO_DERIVED}


def _write_mujoco(env: Any, state: Mapping[str, Any]) -> None:
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name in MUJOCO_DERIVED:
        getattr(env.data, name)[:] = state[name]


def _read_ale(env: Any) -> dict[str, Any]:
    return {"system": np.frombuffer(env.clone_state(include_rng=True).__getstate__(), dtype=np.uint8)}


def _write_ale(env: Any, state: Mapping[str, Any]) -> None:
    from ale_py import ALEState

    system = ALEState.__new__(ALEState)
    system.__setstate__(state["system"].tobytes())
    env.restore_state(system)


_READERS = {"classic": _read_classic, "mujoco": _read_mujoco, "ale": _read_ale}
_WRITERS = {"classic": _write_classic, "mujoco": _write_mujoco, "ale": _write_ale}
