"""Collecting experience: a policy, some environments, and buffers shared between NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.rollout import Episode, Rollout, next_values
from rl_training.data.trees import (
    Tree,
    flatten_time,
    observation_buffers,
    to_observations,
    to_tensors,
    tree_map,
    zeros_for,
)
from rl_training.envs.types import Envs, EnvStep
from rl_training.envs.vector import first_bad_row, sums_are_finite
from rl_training.errors import EnvironmentFault
from rl_training.models.actor_critic import Acted
from rl_training.runtime.episodes import EpisodeTracker
from rl_training.runtime.policy import EVERYTHING, LOGPROBS, VALUES, Policy, PolicySnapshot, apply_snapshot


class Collector(Protocol):
    """Local or remote: the loop does not know."""

    num_envs: int
    restorable: bool
    shares_weights: bool
    layout: list[tuple[int, str]]  # how many environments each process steps, and of which kind

    def publish(self, snapshot: PolicySnapshot) -> None: ...

    def collect(self, num_steps: int) -> Rollout: ...

    def restart(self, seed: int) -> None:
        """Begins new episodes everywhere: what follows depends on nothing that came before."""

    def metrics(self) -> Mapping[str, float]:
        """How collecting went since the last call."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def layout_of(state: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The layout of the collector whose state it is."""
    return [(len(part["starts"]), part.get("kind", "")) for part in state.get("workers", [state])]


def restarted(state: Tensor, starts: NDArray[np.bool_], policy: Policy) -> Tensor:
    """The recurrent state with a fresh one wherever an episode starts."""
    if not (state.shape[1] and starts.any()):
        return state
    return torch.where(torch.from_numpy(starts).to(state.device)[:, None], policy.initial_state(len(state)), state)


class _Final(NamedTuple):
    """The observations that ended episodes in row `t`, with the recurrent state that had seen all but them."""

    t: int
    rows: NDArray[np.int64]
    obs: Tree
    state: Tensor


class LocalCollector:
    """Steps the environments in this process."""

    shares_weights = True

    def __init__(
        self, envs: Envs, policy: Policy, *, seed: int, source: int = 0, reads: Collection[str] = EVERYTHING
    ) -> None:
        """`reads` says what the learner wants to know of the policy, as `Learner.reads` does."""
        self.envs = envs
        self.reads = frozenset(reads)
        self.policy = policy
        self.num_envs = envs.num_envs
        self.layout = [(envs.num_envs, envs.kind)]
        self.restorable = envs.restorable
        self.source = source
        self._version = 0
        self._act: Callable[..., Acted] = policy.act
        self._generator = torch.Generator(policy.device)
        self._buffers: _Buffers | None = None
        self._total_steps = 0
        self.restart(seed)

    def publish(self, snapshot: PolicySnapshot) -> None:
        self._version = snapshot.version
        self._act = self.policy.act_randomly if snapshot.acts_randomly else self.policy.act
        apply_snapshot(self.policy, snapshot)

    def restart(self, seed: int) -> None:
        self._generator.manual_seed(seed)
        self._obs = self.envs.reset(seed)
        self._starts = np.ones(self.num_envs, dtype=bool)
        self._state = self.policy.initial_state(self.num_envs)
        self._tracker = EpisodeTracker(self.envs)

    def collect(self, num_steps: int) -> Rollout:
        """`num_steps` rows of every environment; the tensors are reused by the next call."""
        if self._buffers is None or len(self._buffers.rewards) != num_steps:
            self._buffers = _Buffers(self.envs, num_steps, self.policy.device)
        finals, episodes = self._fill(self._buffers, num_steps)
        self._check_finite(self._buffers, finals)
        self._total_steps += num_steps
        return self._rollout(self._buffers, finals, tuple(episodes))

    @torch.inference_mode()
    def _fill(self, rows: _Buffers, num_steps: int) -> tuple[list[_Final], list[Episode]]:
        finals: list[_Final] = []
        episodes: list[Episode] = []
        _write(rows.obs, 0, self._obs)
        policy, envs, tracker = self.policy, self.envs, self._tracker
        for t in range(num_steps):
            rows.starts[t] = self._starts
            acted = self._act(rows.obs_at(t), self._state, generator=self._generator)
            step = envs.step(policy.env_actions(rows.write_acted(t, acted)))
            rows.write_step(t, step)
            if len(step.final_rows):
                finals.append(_Final(t, step.final_rows, step.final_obs, acted.state[step.final_rows]))
            self._starts = step.starts
            self._state = restarted(acted.state, step.starts, policy)
            episodes += [episode for _, episode in tracker.add(step)]
        self._obs = tree_map(lambda buffer: buffer[num_steps].copy(), rows.obs)
        return finals, episodes

    @torch.no_grad()
    def _rollout(self, rows: _Buffers, finals: list[_Final], episodes: tuple[Episode, ...]) -> Rollout:
        device = self.policy.device
        all_obs = tree_map(lambda leaf: leaf.to(device), rows.all_obs)
        last_obs = tree_map(lambda leaf: leaf[-1], all_obs)
        obs = tree_map(lambda leaf: leaf[:-1], all_obs)
        ends_at = np.array([(f.t, row) for f in finals for row in f.rows], dtype=np.int64)
        final_rows = torch.from_numpy(ends_at.reshape(-1, 2))
        final_obs = tree_map(lambda leaf: leaf[:0], last_obs)
        if finals:
            ends = tree_map(lambda *leaves: np.concatenate(leaves), *(final.obs for final in finals))
            final_obs = to_observations(ends, device)
        actions, logprobs, values = (rows.tensor(name) for name in ("actions", "logprobs", "values"))
        last_values = None
        if LOGPROBS in self.reads and not rows.scored:
            evaluated = self.policy.evaluate_actions(flatten_time(obs), flatten_time(actions.to(device)))
            logprobs.copy_(evaluated.logprobs.reshape(logprobs.shape))
            values.copy_(evaluated.values.reshape(values.shape))
        elif VALUES in self.reads and not rows.valued:
            in_time = self.policy.values(flatten_time(all_obs)).reshape(len(values) + 1, -1).cpu()
            values.copy_(in_time[:-1])
            last_values = in_time[-1]
        following = values
        if VALUES in self.reads:
            states = [final.state for final in finals]
            final_values = self.policy.values(final_obs, torch.cat(states)).cpu() if finals else torch.empty(0)
            if last_values is None:
                last_values = self.policy.values(last_obs, self._state).cpu()
            following = next_values(values, last_values, final_rows, final_values)
        names = ("rewards", "terminated", "truncated", "valid", "starts")
        return Rollout(
            obs=obs,
            actions=actions.to(device),
            behavior_logprobs=logprobs.to(device),
            values=values.to(device),
            next_values=following.to(device),
            last_obs=last_obs,
            final_rows=final_rows,
            final_obs=final_obs,
            policy_version=torch.full(values.shape, self._version),
            extras=to_tensors(rows.extras, device),
            episodes=episodes,
            source=self.source,
            **{name: rows.tensor(name).to(device) for name in names},
        )

    def metrics(self) -> Mapping[str, float]:
        return {}

    def _check_finite(self, rows: _Buffers, finals: list[_Final]) -> None:
        """Row `t` is what step `t` gave, row 0 what was there before; final observations are in no row."""
        if sums_are_finite(rows.obs, rows.rewards, *(final.obs for final in finals)):
            return
        nothing = np.zeros((1, self.num_envs), dtype=np.float32)
        found = [first_bad_row(rows.obs, np.concatenate([nothing, rows.rewards]))]
        for final in finals:
            bad = first_bad_row(tree_map(lambda leaf: leaf[None], final.obs), nothing[:, : len(final.rows)])
            found.append(bad and (final.t + 1, int(final.rows[bad[1]]), bad[2]))
        for t, index, what in sorted(bad for bad in found if bad):
            raise EnvironmentFault(f"environment {index}, step {self._total_steps + t}: {what} is not finite")

    def state_dict(self) -> dict[str, Any]:
        state = {
            "rng": self._generator.get_state(),
            "starts": self._starts.copy(),
            "state": self._state.clone(),
            "returns": self._tracker.returns.copy(),
            "lengths": self._tracker.lengths.copy(),
            "infos": self._tracker.infos.state_dict(),
            "total_steps": self._total_steps,
            "kind": self.envs.kind,
        }
        return state | ({"envs": self.envs.state_dict()} if self.restorable else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Without the environments' own state, only a restart can follow."""
        if self.restorable:
            self._obs = self.envs.load_state_dict(state["envs"])
            if _shapes(self._obs) != _shapes(zeros_for(self.envs.spaces.observation, (self.num_envs,))):
                raise ValueError("the restored environments give observations of another shape")
        self._generator.set_state(state["rng"])
        self._starts = state["starts"].copy()
        self._state = state["state"].to(self.policy.device)
        self._tracker.returns[:], self._tracker.lengths[:] = state["returns"], state["lengths"]
        self._tracker.infos.load_state_dict(state.get("infos", {}))
        self._total_steps = state["total_steps"]

    def close(self) -> None:
        self.envs.close()


def _shapes(tree: Tree) -> Tree:
    return tree_map(np.shape, tree)


def _write(buffers: Tree, t: int, row: Tree) -> None:
    if isinstance(buffers, Mapping):
        for key, buffer in buffers.items():
            _write(buffer, t, row[key])
    else:
        buffers[t] = row


class _Buffers:
    """Preallocated `[T, B]` arrays; observations have a row more, so that each row's successor is the row below."""

    def __init__(self, envs: Envs, num_steps: int, device: torch.device) -> None:
        shape = (num_steps, envs.num_envs)
        self.obs = observation_buffers(envs.spaces.observation, (num_steps + 1, envs.num_envs))
        self.rewards, self.logprobs, self.values = (np.zeros(shape, dtype=np.float32) for _ in range(3))
        self.terminated, self.truncated, self.valid, self.starts = (np.zeros(shape, dtype=bool) for _ in range(4))
        self.actions: NDArray[Any] | None = None
        self.extras: dict[str, NDArray[Any]] = {}
        self.scored = self.valued = False  # whether the policy gave log-probs and values while it acted
        self._device = device
        self._tensors: dict[str, Tensor] = {}
        self.all_obs = to_tensors(self.obs)
        self._obs_rows = [tree_map(lambda leaf, t=t: leaf[t], self.all_obs) for t in range(num_steps)]

    def obs_at(self, t: int) -> Tree:
        if self._device.type == "cpu":
            return self._obs_rows[t]
        return tree_map(lambda leaf: leaf.to(self._device), self._obs_rows[t])

    def write_acted(self, t: int, acted: Acted) -> NDArray[Any]:
        """Returns the actions as an array that nobody will write to."""
        actions = acted.actions.cpu().numpy()
        if self.actions is None:  # the first row decides what a row holds
            self.actions = self._like(actions)
        self.actions[t] = actions
        if acted.logprobs is not None:
            self.scored = True
            self.logprobs[t] = acted.logprobs.cpu().numpy()
        if acted.values is not None:
            self.valued = True
            self.values[t] = acted.values.cpu().numpy()
        for name, value in acted.extras.items():
            row = value.cpu().numpy()
            if name not in self.extras:
                self.extras[name] = self._like(row)
            self.extras[name][t] = row
        return actions

    def write_step(self, t: int, step: EnvStep) -> None:
        _write(self.obs, t + 1, step.obs)
        self.rewards[t] = step.rewards
        self.terminated[t] = step.terminated
        self.truncated[t] = step.truncated
        self.valid[t] = step.valid

    def tensor(self, name: str) -> Tensor:
        """The buffer of this name as a tensor, which shares its memory."""
        if name not in self._tensors:
            self._tensors[name] = torch.from_numpy(getattr(self, name))
        return self._tensors[name]

    def _like(self, row: NDArray[Any]) -> NDArray[Any]:
        return np.zeros((len(self.rewards), *row.shape), dtype=row.dtype)
