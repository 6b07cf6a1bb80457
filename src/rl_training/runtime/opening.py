"""Opening what lies on disk: the one door through which every verb and the managed API take a run or a model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.algorithms.params import LiveParams
from rl_training.envs.sources import EnvSource, config_name, is_instance
from rl_training.envs.space_codec import spaces_from
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.fitting import load_fitting, loading_from, loading_part
from rl_training.experiment.registry import algorithm
from rl_training.experiment.trust import is_own, refuse_strange_code
from rl_training.kernels import using
from rl_training.naming import PYTHON_PREFIX
from rl_training.runtime.controls import canonical_keys
from rl_training.runtime.session import WEIGHTS, Session, derive_seed, resolve_device, set_global_rng_state

_log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A checkpoint that may be used: nothing in its config names code that the user did not choose."""

    path: Path
    state: dict[str, Any]
    config: TrainConfig
    env: EnvSource | None

    def session(self) -> Session:
        """A session with the checkpoint's state."""
        session = Session(self.config, env=self.env)
        try:
            with loading_from(self.path):
                session.load_state_dict(self.state)
        except BaseException:
            session.close()
            raise
        return session


def open_checkpoint(
    path: Path | str,
    *,
    which: str | int = "latest",
    env: EnvSource | None = None,
    trust: bool = False,
    needs_env: bool = True,
    trains: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> Opened:
    """Reads and verifies a checkpoint, and refuses it if it would import what the user did not choose.

    `env` takes the place of the stored environment; `changes` are keys of the config that are to differ. What is not
    to train on needs no schedules that were Python functions: their last values are stored.
    """
    state = load_checkpoint(Path(path), which)
    stored = state.get("config")
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: the checkpoint has no config; this package did not write it")
    usable = _with_environment(stored, env)
    if not (trust or is_own(stored, state.get("signature"))):
        given = (env, *env.split(",")) if isinstance(env, str) else ()
        refuse_strange_code(usable, path=path, given=given, needs_env=needs_env)
    if usable.get("ray_address") is not None:  # a stranger's cluster would receive what this process sends
        usable = {**usable, "ray_address": None}
        if not (changes or {}).get("ray_address"):
            _log.warning("the ray_address in %s is not used; give --ray-address to join a cluster", path)
    if not trains:
        usable = _with_fixed_schedules(usable, state.get("controls"))
    config = make_config(merge(usable, changes or {}))
    return Opened(Path(path), state, config, None if isinstance(env, str) else env)


def _with_environment(stored: Mapping[str, Any], env: EnvSource | None) -> Mapping[str, Any]:
    """The config with the environment that the user gave, so that the stored one is never imported, now or later."""
    tasks = stored.get("tasks")
    if env is None or (tasks and isinstance(env, str) and env.split(",") == tasks):
        return stored
    if tasks:
        raise ConfigError(f"env: the run has the tasks {', '.join(map(str, tasks))}; give all of them, or none")
    brought = {"num_envs": getattr(env, "num_envs", 1)} if is_instance(env) else {}
    return {**stored, "env_id": config_name(env), **brought}


def _with_fixed_schedules(stored: Mapping[str, Any], values: Any) -> Mapping[str, Any]:
    """The config with the last value in place of each schedule that was a Python function."""
    kwargs = stored.get("algo_kwargs")
    if not isinstance(kwargs, dict) or not isinstance(values, dict):
        return stored
    functions = [key for key, spec in kwargs.items() if str(spec).startswith(PYTHON_PREFIX)]
    controls = algorithm(str(stored.get("algo"))).learner_class().controls
    names = {key: next(iter(canonical_keys({key: None}, controls))).removesuffix("_schedule") for key in functions}
    fixed = {key: {"kind": "constant", "value": values[name]} for key, name in names.items() if name in values}
    return {**stored, "algo_kwargs": {**kwargs, **fixed}}


class LoadedPolicy:
    """A checkpoint's policy without environments: enough to predict."""

    def __init__(self, opened: Opened) -> None:
        config, state = opened.config, opened.state
        parsed = config.parsed_params()
        params = LiveParams(parsed.params)
        self._kernels = config.kernels
        with loading_from(opened.path), loading_part("state"):
            self.spaces = spaces_from(state["spaces"])
            learner, step = state["learner"], int(state["progress"]["global_step"])
            device, seed = resolve_device(config.device), derive_seed(config.seed, WEIGHTS)
            algorithm = config.learner_class().build_seeded(params, self.spaces, seed=seed, device=device)
            load_fitting(algorithm, "algorithm", learner)
            params.move(parsed.controls.resolve(step))
            set_global_rng_state(state["rng"])
        self.policy = algorithm.policy

    def kernels(self) -> AbstractContextManager[None]:
        """Whatever computes with the policy does so within this."""
        return using(self._kernels)


def load_policy(path: Path | str, *, which: str | int = "latest", trust: bool = False) -> LoadedPolicy:
    """The policy of a run, a checkpoint or a saved agent; no environment is made."""
    return LoadedPolicy(open_checkpoint(path, which=which, trust=trust, needs_env=False, trains=False))


def load_session(
    path: Path | str,
    *,
    which: str | int = "latest",
    env: EnvSource | None = None,
    trust: bool = False,
    **changes: Any,
) -> Session:
    """A session as the checkpoint left it, in this process; `changes` are config keys that may differ."""
    opened = open_checkpoint(path, which=which, env=env, trust=trust, trains=False, changes=changes)
    return opened._replace(config=opened.config.in_one_process()).session()
