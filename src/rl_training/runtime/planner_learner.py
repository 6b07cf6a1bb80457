"""What the planners share: their parameters, the replay, targets along unrolls, and searches done again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.muzero import MuZero
from rl_training.data.replay import Rows
from rl_training.data.rollout import Rollout
from rl_training.data.trajectories import PRIORITY, TrajectoryReplay
from rl_training.data.trees import Tree, flatten_time, to_tensors
from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel, MuZeroOptions, PlanningModel
from rl_training.models.torsos import TorsoOptions
from rl_training.ops.unroll import unroll_targets
from rl_training.runtime.controls import (
    LEARNING_RATE,
    NUM_SIMULATIONS,
    REANALYSE_FRACTION,
    REPLAY_RATIO,
    TEMPERATURE,
    Control,
)
from rl_training.runtime.learner import Learner
from rl_training.runtime.params import Params
from rl_training.search.policy import SEARCH_POLICY, SearchPolicy

WINDOW = ("rewards", "terminated", "truncated", "is_first", "is_last", "values", "next_values")
SMALLEST_PRIORITY = 1e-3


class PlannerParams(Params):
    """Of MuZero and its kin."""

    learning_rate: PositiveFloat = 1e-3
    gamma: float = Field(0.997, ge=0, le=1)
    num_simulations: PositiveInt = 25
    temperature: float = Field(1.0, ge=0)
    max_depth: PositiveInt | None = Field(None, description="of the search; default: no limit")
    unroll_steps: PositiveInt = Field(5, description="imagined steps that an update trains")
    n_steps: PositiveInt = Field(5, description="real rewards in a value target")
    correction_interval: PositiveInt | None = Field(
        None, description="age in steps that takes a step off a value target; default: none does"
    )
    fresh_bootstraps: bool = Field(
        False, description="value targets end in what the target network says now, not in what a search said then"
    )
    batch_size: PositiveInt = 256
    replay_capacity: PositiveInt = 100_000
    replay_ratio: float = Field(0.1, ge=0, description="updates per environment step")
    learning_starts: int = Field(1_000, ge=0, description="replayed rows before the first update")
    reanalyse_fraction: float = Field(
        0.0, ge=0, le=1, description="replayed rows searched again, as a share of a batch"
    )
    priority_alpha: float = Field(0.6, ge=0, description="how much value errors decide what is replayed; 0: not at all")
    priority_beta: float = Field(0.4, ge=0, le=1, description="how much importance weights make up for it")
    target_update_interval: PositiveInt = 100
    value_coef: float = Field(0.25, ge=0)
    max_grad_norm: PositiveFloat = 5.0
    adam_eps: PositiveFloat = 1e-5
    rollout_steps: PositiveInt = Field(8, description="rows of every environment in a rollout")
    hidden_sizes: tuple[PositiveInt, ...] = Field((128,), description="of the representation of vectors")
    cnn: Literal["nature", "impala"] = "nature"
    latent_size: PositiveInt = 64
    hidden_size: PositiveInt = Field(128, description="of dynamics and prediction")
    normalize_obs: bool = True
    support_size: PositiveInt = Field(25, description="bins on each side of 0; a return of 500 is about 22")


class PlannerLearner(Learner):
    """`owed` are the updates that the steps taken so far have earned and not had."""

    Params: ClassVar[type[Params]] = PlannerParams
    controls: ClassVar[tuple[Control, ...]] = (
        LEARNING_RATE,
        TEMPERATURE,
        NUM_SIMULATIONS,
        REPLAY_RATIO,
        REANALYSE_FRACTION,
    )
    algorithm_class: ClassVar[type[MuZero]] = MuZero
    bears_stale_data = True
    state_parts = (*Learner.state_parts, "replay")
    state_scalars = ("owed",)
    params: PlannerParams
    algorithm: MuZero

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.replay = TrajectoryReplay(params.replay_capacity, num_envs)
        self.owed = 0.0

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> MuZero:
        return cls.algorithm_class(cls.build_policy(params, spaces), **cls.algorithm_options(params))

    @classmethod
    def algorithm_options(cls, params: Any) -> dict[str, Any]:
        """What the algorithm takes beside the policy."""
        names = ("learning_rate", "replay_ratio", "reanalyse_fraction", "value_coef", "max_grad_norm", "adam_eps")
        return {name: getattr(params, name) for name in (*names, "target_update_interval")}

    @classmethod
    @abstractmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> SearchPolicy: ...

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> PlanningModel:
        return MuZeroModel(spaces, MuZeroOptions(**cls.model_options(params)))

    @classmethod
    def model_options(cls, params: Any) -> dict[str, Any]:
        names = ("latent_size", "hidden_size", "support_size", "normalize_obs")
        torso = TorsoOptions(params.hidden_sizes, "relu", params.cnn)
        return {"torso": torso} | {name: getattr(params, name) for name in names}

    @classmethod
    def search_options(cls, params: Any, spaces: Spaces) -> dict[str, Any]:
        names = ("num_simulations", "temperature", "max_depth")
        options = {name: getattr(params, name) for name in names}
        return options | {"discount": params.gamma, "first_action": int(getattr(spaces.action, "start", 0))}

    @property
    def rollout_steps(self) -> int:
        return self.params.rollout_steps

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        priorities = torch.full_like(rollout.rewards, self.replay.highest_priority())
        columns = {"values": rollout.values, "next_values": rollout.next_values, PRIORITY: priorities}
        self.replay.add(replace(rollout, extras={**rollout.extras, **columns}))
        self.algorithm.model.observe(flatten_time(rollout.obs))
        if len(self.replay) < self.params.learning_starts:
            return
        self.owed += self.algorithm.replay_ratio * rollout.num_steps
        updates, size = int(self.owed), self.params.batch_size
        self.owed -= updates
        rows, chances = self.replay.draw(updates * size, self.rng.generator, alpha=self.params.priority_alpha)
        for low in range(0, updates * size, size):
            part = slice(low, low + size)
            yield self.update((rows[0][part], rows[1][part]), chances[part], global_step=global_step)

    def update(self, rows: Rows, chances: NDArray[np.float64], *, global_step: int) -> UpdateResult:
        """One update on the windows that begin at the rows, drawn by so many times their equal share."""
        self.reanalyse(round(self.algorithm.reanalyse_fraction * len(chances)))
        if self.params.fresh_bootstraps:
            self.refresh_bootstraps(rows)
        result = self.algorithm.update(self.batch(rows, chances), global_step=global_step)
        self.replay.write(PRIORITY, rows, result.errors.cpu().numpy() + SMALLEST_PRIORITY)
        return result

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """Windows as the algorithm takes them; past an end the actions are random, since any leads nowhere."""
        steps, replay = self.params.unroll_steps, self.replay
        (streams, places), written = replay.following(rows, steps + self.params.n_steps)
        window = {name: replay.column(name, (streams, places)) for name in WINDOW}
        targets = unroll_targets(
            window, written, unroll_steps=steps, n_steps=self.n_steps(rows), gamma=self.params.gamma
        )
        unrolled = (streams[: steps + 1], places[: steps + 1])
        taken = replay.column("actions", (streams[:steps], places[:steps]))
        random = self.rng.generator.integers(self.algorithm.model.num_actions, size=taken.shape)
        weights = chances**-self.params.priority_beta
        arrays = {
            "obs": replay.column("obs", rows),
            "actions": np.where(targets.has_state[:-1], taken, random),
            "policies": replay.column(SEARCH_POLICY, unrolled),
            "value_targets": targets.values,
            "reward_targets": targets.rewards,
            "has_state": targets.has_state,
            "has_value": targets.has_value,
            "has_reward": targets.has_reward,
            "weights": (weights / weights.mean()).astype(np.float32),
        }
        return to_tensors(arrays, self.algorithm.policy.device)

    def n_steps(self, rows: Rows) -> int | NDArray[np.int64]:
        """How many rewards the value targets of windows that begin at the rows take in.

        Off-policy correction: the older the data, the fewer of its rewards are trusted (Ye et al., 2021, eq. 5), in
        the end none: what a search says of the state itself (Wang et al., 2024). A network's own value would teach it
        nothing.
        """
        steps, interval = self.params.n_steps, self.params.correction_interval
        if interval is None:
            return steps
        fewest = 1 if self.params.fresh_bootstraps else 0
        return np.maximum(steps - self.replay.ages(rows) * self.num_envs // interval, fewest)

    def reanalyse(self, count: int) -> None:
        """Searches replayed states again, with the target network; their policies and values are written anew."""
        if not count:
            return
        rng, replay = self.rng.generator, self.replay
        rows = replay.draw_uniformly(count, rng)
        obs = to_tensors(replay.column("obs", rows), self.algorithm.policy.device)
        plan = self.algorithm.policy.plan(obs, rng, model=self.algorithm.target.network)
        replay.write(SEARCH_POLICY, rows, plan.policy)
        self._write_values(rows, plan.values)

    @torch.no_grad()
    def refresh_bootstraps(self, rows: Rows) -> None:
        """Writes anew what the states are worth in which the value targets of windows from the rows on end."""
        ends = (rows[0], rows[1] + self.n_steps(rows))
        (streams, places), written = self.replay.following(ends, self.params.unroll_steps + 1)
        states = (streams[written], places[written])
        obs = to_tensors(self.replay.column("obs", states), self.algorithm.policy.device)
        self._write_values(states, self.algorithm.target.network.initial(obs)[1].float().cpu().numpy())

    def _write_values(self, rows: Rows, values: NDArray[np.float32]) -> None:
        """Of states, to their own rows and to those that led there."""
        self.replay.write("values", rows, values)
        (streams, places), kept = self.replay.predecessors(rows)
        self.replay.write("next_values", (streams[kept], places[kept]), values[kept])
