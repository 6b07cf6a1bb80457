"""The base of the planners' learners: models and policies, targets along unrolls, and searches done again."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.muzero import MuZero, PlannerParams
from rl_training.algorithms.params import Params
from rl_training.data.replay import Rows
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, to_tensors
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel, MuZeroOptions, PlanningModel
from rl_training.models.options import options_from
from rl_training.models.torsos import TorsoOptions, idle_beside_cnn
from rl_training.ops.unroll import ENDS, target_ends, unroll_targets
from rl_training.runtime.controls import (
    LEARNING_RATE,
    NUM_SIMULATIONS,
    REANALYSE_FRACTION,
    REPLAY_RATIO,
    TEMPERATURE,
    Control,
)
from rl_training.runtime.policy import VALUES
from rl_training.runtime.replay_learner import ReplayLearner
from rl_training.search.policy import SEARCH_POLICY, SearchPolicy

WINDOW = ("rewards", "values", "next_values", *ENDS)
SMALLEST_PRIORITY = 1e-3


class PlannerLearner(ReplayLearner):
    """Replays windows by the errors of their values, some of them searched again."""

    Params: ClassVar[type[Params]] = PlannerParams
    controls: ClassVar[tuple[Control, ...]] = (
        LEARNING_RATE,
        TEMPERATURE,
        NUM_SIMULATIONS,
        REPLAY_RATIO,
        REANALYSE_FRACTION,
    )
    algorithm_class: ClassVar[type[MuZero]] = MuZero
    reads = (VALUES,)
    priority_alpha = "priority_alpha"
    params: PlannerParams
    algorithm: MuZero

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        return idle_beside_cnn(seen_space(spaces), "hidden_sizes")

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> MuZero:
        policy = cls.policy_class(params)(
            cls.build_model(params, spaces),
            params,
            max_depth=cls.max_depth(params),
            first_action=int(getattr(spaces.action, "start", 0)),
        )
        return cls.algorithm_class(policy, params)

    @classmethod
    @abstractmethod
    def policy_class(cls, params: Any) -> type[SearchPolicy]: ...

    @classmethod
    def build_model(cls, params: Any, spaces: Spaces) -> PlanningModel:
        return MuZeroModel(spaces, options_from(MuZeroOptions, params, torso=cls.torso_options(params)))

    @classmethod
    def torso_options(cls, params: Any) -> TorsoOptions:
        return options_from(TorsoOptions, params, activation="relu")

    @classmethod
    def max_depth(cls, params: Any) -> int | None:
        return params.max_depth

    def store(self, rollout: Rollout) -> None:
        columns = {"values": rollout.values, "next_values": rollout.next_values}
        first = self.replay.next_rows(rollout)
        super().store(replace(rollout, extras={**rollout.extras, **columns}))
        searched = rollout.valid[0].cpu().numpy()
        # The rows before these were stored with the network's value of what followed; now it has been searched.
        self._write_values((first[0][searched], first[1][searched]), rollout.values[0].cpu().numpy()[searched])
        self.algorithm.model.update_statistics(flatten_time(rollout.obs))

    def update(self) -> UpdateResult:
        size = self.params.batch_size
        rows, chances = self.draw(size)
        self.reanalyse(round(self.params.reanalyse_fraction * size))
        if self.params.fresh_bootstraps:
            self.refresh_bootstraps(rows)
        result = self.algorithm.update(self.batch(rows, chances))
        self.replay.set_priorities(rows, result.errors.cpu().numpy() + SMALLEST_PRIORITY)
        return result

    def draw(self, size: int) -> tuple[Rows, NDArray[np.float64]]:
        """The rows that windows begin at, and how many times an equal share the chance of each was."""
        return self.replay.draw(size, self.rng.generator)

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """The windows that begin at the rows, which were drawn by so many times their equal share.

        Past an end the actions are random, since any leads nowhere.
        """
        steps, replay = self.params.unroll_steps, self.replay
        (streams, places), written = replay.following(rows, steps + self.params.n_steps)
        window = {name: replay.column(name, (streams, places)) for name in WINDOW}
        targets = unroll_targets(
            window, written, unroll_steps=steps, n_steps=self.n_steps(rows), gamma=self.signed_gamma
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

    @property
    def signed_gamma(self) -> float:
        """The discount of value targets. Of two players, what the other earns in between counts against the mover."""
        return self.params.gamma if self.params.players == 1 else -self.params.gamma

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
        """Searches replayed states again, with the target network, and replaces their policies and values."""
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
        """Recomputes the bootstrap values that the value targets of these windows use."""
        steps = self.params.unroll_steps
        (streams, places), written = self.replay.following(rows, steps + self.params.n_steps + 1)
        window = {name: self.replay.column(name, (streams, places)) for name in ENDS}
        ends = target_ends(window, written, unroll_steps=steps, n_steps=self.n_steps(rows))
        seen = np.take_along_axis(written, ends, axis=0)
        states = (streams[: steps + 1][seen], np.take_along_axis(places, ends, axis=0)[seen])
        obs = to_tensors(self.replay.column("obs", states), self.algorithm.policy.device)
        self._write_values(states, self.algorithm.target.network.initial(obs)[1].float().cpu().numpy())

    def _write_values(self, rows: Rows, values: NDArray[np.float32]) -> None:
        """Stores state values in their own rows and as `next_values` of the rows before."""
        self.replay.write("values", rows, values)
        (streams, places), kept = self.replay.predecessors(rows)
        self.replay.write("next_values", (streams[kept], places[kept]), values[kept])
