"""Environments stepped one after the other in this process, each fault traced to its environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.blame import told
from rl_training.data.trees import tree_map, zeros_for
from rl_training.envs.answers import reset_obs, step_parts, write_row
from rl_training.envs.infos import InfoRow, numbers_in
from rl_training.envs.state import can_restore, read_state, write_state
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.errors import EnvironmentFault


class SyncEnvs(Envs):
    """An episode that ends is followed at once by the first observation of the next one: no row is lost to resets."""

    def __init__(self, makers: Sequence[Callable[[], gym.Env]], *, first: int = 0, steps: int = 0) -> None:
        """Faults count environments from `first` on and steps from `steps` on: they may be some of many."""
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.spaces = Spaces(self.envs[0].observation_space, self.envs[0].action_space)
        self.restorable = all(can_restore(env) for env in self.envs)
        self._first, self._steps = first, steps
        self._current = 0  # the environment that is asked
        self._obs = zeros_for(self.spaces.observation, (self.num_envs,))
        self._form = (None, ()) if isinstance(self._obs, Mapping) else (self._obs.dtype, self._obs.shape[1:])
        self._no_rows = np.empty(0, dtype=np.int64)
        self._valid = np.ones(self.num_envs, dtype=bool)
        self._discrete = isinstance(self.spaces.action, gym.spaces.Discrete)

    @property
    def kind(self) -> str:
        """Names the classes, too: another environment may have the same name, and has another state."""
        return f"{type(self).__name__} of {_classes(self.envs[0])}"

    def reset(self, seed: int) -> Any:
        for index, env in enumerate(self.envs):
            self._current = index
            self._store(index, self._reset(env, seed=seed + index))
        return tree_map(np.copy, self._obs)

    def step(self, actions: NDArray[Any]) -> EnvStep:
        self._steps += 1
        rewards: list[float] = []
        terminations: list[bool] = []
        truncations: list[bool] = []
        final_rows: list[int] = []
        final_obs: list[Any] = []
        infos: list[InfoRow] = []
        # A Discrete environment expects a number, and indexing a list is quicker than indexing an array.
        chosen = actions.tolist() if self._discrete else actions
        for index, env in enumerate(self.envs):
            self._current = index
            try:
                answer = env.step(chosen[index])
            except (Exception, SystemExit) as error:
                raise self._fault(f"step raised {told(error)}") from error
            obs, reward, is_terminal, is_cut, info = step_parts(answer, self._fault)
            if info.__class__ is not dict or info:
                infos.append((index, numbers_in(info)))
            rewards.append(reward)
            terminations.append(is_terminal)
            truncations.append(is_cut)
            if is_terminal or is_cut:
                self._store(index, obs)
                final_rows.append(index)
                final_obs.append(tree_map(lambda leaf, i=index: leaf[i].copy(), self._obs))
                obs = self._reset(env)
            self._store(index, obs)
        terminated, truncated = np.array(terminations), np.array(truncations)
        return EnvStep(
            obs=self._obs,
            rewards=np.array(rewards, dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            valid=self._valid,
            starts=terminated | truncated,
            final_rows=np.array(final_rows) if final_rows else self._no_rows,
            final_obs=tree_map(lambda *leaves: np.stack(leaves), *final_obs) if final_obs else None,
            infos=tuple(infos),
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "envs": [read_state(env) for env in self.envs],
            "obs": tree_map(np.copy, self._obs),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        for index, (env, saved) in enumerate(zip(self.envs, state["envs"], strict=True)):
            self._current = index
            self._reset(env, seed=0)  # some environments build their world in reset
            write_state(env, saved)
        self._obs = tree_map(np.copy, state["obs"])
        self._steps = int(state["steps"])
        return tree_map(np.copy, self._obs)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _store(self, index: int, obs: Any) -> None:
        if type(obs) is np.ndarray and (obs.dtype, obs.shape) == self._form:
            self._obs[index] = obs  # nearly always
            return
        write_row(self._obs, obs, index, lambda problem: self._fault(f"observation {problem}"))

    def _reset(self, env: gym.Env, **kwargs: Any) -> Any:
        try:
            answer = env.reset(**kwargs)
        except (Exception, SystemExit) as error:
            raise self._fault(f"reset raised {told(error)}") from error
        return reset_obs(answer, self._fault)

    def at(self) -> str:
        return f"environment {self._first + self._current}, step {self._steps}"

    def _fault(self, problem: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self.at()}: {problem}")


def _classes(env: gym.Env) -> str:
    """The wrappers from the outermost on, and the environment."""
    own = type(env).__name__
    return f"{own}({_classes(env.env)})" if isinstance(env, gym.Wrapper) else own
