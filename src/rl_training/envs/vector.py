"""Gymnasium-style vector environments (async, an env's own, ALE's C++ one, EnvPool) behind the one step semantics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_training.blame import told
from rl_training.data.trees import tree_leaves, tree_map
from rl_training.envs.infos import InfoRow, columns_in
from rl_training.envs.state import can_restore, read_state, write_state
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.errors import EnvironmentFault
from rl_training.replaceable import replaceable

_NO_ROWS = np.empty(0, dtype=np.int64)


class VectorEnvs(Envs):
    """One call steps all environments.

    NEXT_STEP backends spend a row on each reset: the row is marked as not valid, and the final observation is the
    one they returned. SAME_STEP backends hand the final observation over in `info["final_obs"]`.
    """

    def __init__(self, envs: Any, *, same_step: bool, spaces: Spaces) -> None:
        self.envs = envs
        self.num_envs = envs.num_envs
        self.spaces = spaces
        self.restorable = not same_step and can_restore(envs)
        self._same_step = same_step
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._all_valid = np.ones(self.num_envs, dtype=bool)
        self._steps = 0
        self._last_obs: Any = None

    @property
    def kind(self) -> str:
        return f"{type(self).__name__} of {type(self.envs).__name__}"

    def reset(self, seed: int) -> Any:
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._last_obs, _ = self._guard(self.envs.reset, seed=seed)
        return self._last_obs

    def step(self, actions: NDArray[Any]) -> EnvStep:
        self._steps += 1
        obs, rewards, terminated, truncated, info = self._guard(step_together, self.envs, actions)
        self._last_obs = obs
        terminated = np.asarray(terminated, dtype=bool)
        truncated = np.asarray(truncated, dtype=bool)
        done = terminated | truncated
        reset_rows, self._ended = self._ended, done
        final_rows, final_obs = _NO_ROWS, None
        if self._same_step:
            reset_rows = done
            if np.count_nonzero(done):
                final_rows = done.nonzero()[0]
                final_obs = _stack_rows(info["final_obs"], final_rows)
        return EnvStep(
            obs=obs,
            rewards=np.asarray(rewards, dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            valid=self._all_valid if self._same_step else ~reset_rows,
            starts=reset_rows,
            final_rows=final_rows,
            final_obs=final_obs,
            infos=self._infos(info, ~reset_rows) if info else (),
        )

    def _infos(self, info: Mapping[str, Any], own: NDArray[np.bool_]) -> tuple[InfoRow, ...]:
        """Rows that are not the step's `own` tell of the reset; SAME_STEP has the end of an episode apart."""
        final = info.get("final_info") if self._same_step else None
        if not isinstance(final, Mapping):
            return tuple(columns_in(info, own))
        rest = {key: value for key, value in info.items() if key != "final_info"}
        return (*columns_in(rest, own), *columns_in(final, ~own))

    def state_dict(self) -> dict[str, Any]:
        return {
            "envs": read_state(self.envs),
            "obs": tree_map(np.copy, self._last_obs),
            "ended": self._ended.copy(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        self.reset(seed=0)
        write_state(self.envs, state["envs"])
        ended = np.array(state["ended"])
        if ended.dtype != bool or ended.shape != (self.num_envs,):
            raise ValueError(f"ended must have a truth value for each of {self.num_envs} environments")
        self._ended, self._steps = ended, int(state["steps"])
        self._last_obs = tree_map(np.copy, state["obs"])
        return self._last_obs

    def close(self) -> None:
        self.envs.close()

    def at(self) -> str:
        return f"vector step {self._steps}"

    def _guard(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except EnvironmentFault:
            raise
        except (Exception, SystemExit) as error:
            raise EnvironmentFault(f"{self.at()}: {told(error)}") from error


@replaceable
def step_together(envs: Any, actions: NDArray[Any]) -> Any:
    """The answer of a Gymnasium vector environment to its actions."""
    return envs.step(actions)


def autoreset_is_same_step(envs: gym.vector.VectorEnv) -> bool:
    mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if mode == AutoresetMode.DISABLED:
        raise EnvironmentFault(f"{envs} does not restart by itself; use autoreset_mode NEXT_STEP or SAME_STEP")
    return bool(mode == AutoresetMode.SAME_STEP)


def _stack_rows(final_obs: Any, rows: NDArray[np.int64]) -> Any:
    """Final observations come as an object array of single observations or as a batch of all; rows of either."""
    if isinstance(final_obs, np.ndarray) and final_obs.dtype == object:
        picked = [final_obs[row] for row in rows]
        return tree_map(lambda *leaves: np.stack(leaves), *picked)
    return tree_map(lambda leaf: np.asarray(leaf)[rows], final_obs)


@np.errstate(over="ignore", invalid="ignore")
def sums_are_finite(*trees: Any) -> bool:
    """Then all numbers are. The other way round it is not so: a sum may overflow, and an exact look must decide."""
    leaves = [leaf for tree in trees for leaf in tree_leaves(tree) if leaf.dtype.kind == "f"]
    return all(np.isfinite(leaf.sum()) for leaf in leaves)


def first_bad_row(obs: Any, rewards: NDArray[np.float32]) -> tuple[int, int, str] | None:
    """(t, b, what) of the first observation or reward of `[T, B, …]` arrays that is not finite."""
    found = []
    for what, leaf in [*(("observation", leaf) for leaf in tree_leaves(obs)), ("reward", rewards)]:
        bad = ~np.isfinite(leaf).reshape(*rewards.shape, -1).all(-1)
        found += [(int(t), int(b), what) for t, b in np.argwhere(bad)[:1]]
    return min(found, default=None)
