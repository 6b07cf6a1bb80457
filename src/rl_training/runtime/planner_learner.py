"""The base of the planners' learners: models and policies, targets along unrolls, and searches done again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.muzero import MuZero, PlannerParams
from rl_training.algorithms.params import Params
from rl_training.data.replay import Rows
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, to_tensors
from rl_training.envs.kinds import Kind
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel, MuZeroOptions, PlanningModel
from rl_training.models.options import options_from
from rl_training.models.torsos import TorsoOptions, idle_beside_cnn
from rl_training.ops.unroll import ENDS, target_ends, unroll_targets
from rl_training.runtime.augmentation import make_augmentation
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
from rl_training.search.policy import SEARCH_ACTIONS, SEARCH_POLICY, SearchPolicy

WINDOW = ("rewards", "values", "next_values", *ENDS)
SMALLEST_PRIORITY = 1e-3
NETWORK_KEYS = {"cnn", "latent", "residual_blocks"}  # beside which a default torso could be idle
OF_TORSO = {"torso", "latent_size"}  # defaults that go together: of planes, a latent's size would be their channels


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
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = {
        # Found on a grid world of 5 × 5 cells, where planes learn too slowly how actions move things.
        "grids": {
            "torso": "mlp",
            "gamma": 0.98,
            "n_steps": 10,
            "batch_size": 128,
            "replay_ratio": 0.5,
            "reanalyse_fraction": 0.25,
            "value_coef": 1.0,
            "learning_rate": 3e-3,
            "learning_rate_schedule": "linear",
        },
    }
    algorithm_class: ClassVar[type[MuZero]] = MuZero
    reads = (VALUES,)
    priority_alpha = "priority_alpha"
    params: PlannerParams
    algorithm: MuZero

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.augmentation = make_augmentation(params.augmentation, spaces, params.image_layout)

    @classmethod
    def defaults_for(cls, spaces: Spaces, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Games for two keep the general defaults: these were found on tasks for one."""
        if given.get("players") == 2:
            return {}
        found = super().defaults_for(spaces, given)
        chooses_torso = not given.keys() & NETWORK_KEYS and not isinstance(spaces.observation, Dict)
        return {key: found[key] for key in found if key not in OF_TORSO or chooses_torso}

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        return idle_beside_cnn(seen_space(spaces), "hidden_sizes")

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> MuZero:
        policy = cls.policy_class(params)(
            cls.build_model(params, spaces),
            params,
            max_depth=cls.max_depth(params),
            first_action=int(spaces.action.start) if isinstance(spaces.action, Discrete) else 0,
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
        return options_from(TorsoOptions, params, activation="relu", precision="float32")

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
        batch = self.batch(rows, chances)
        if self.augmentation is not None:
            batch = self.augmentation(batch, self.rng.generator)
        result = self.algorithm.update(batch)
        self.replay.set_priorities(rows, result.errors.cpu().numpy() + SMALLEST_PRIORITY)
        return result

    @property
    def window_steps(self) -> int:
        """The steps of the windows that updates train."""
        return self.params.unroll_steps

    def states_before(self, rows: Rows, model: PlanningModel) -> Tensor:
        """The states that a policy with the model would have had when it saw the rows."""
        return model.initial_state(len(rows[0]))

    def draw(self, size: int) -> tuple[Rows, NDArray[np.float64]]:
        """The rows that windows begin at, and how many times an equal share the chance of each was."""
        return self.replay.draw(size, self.rng.generator)

    def batch(self, rows: Rows, chances: NDArray[np.float64]) -> dict[str, Tree]:
        """The windows that begin at the rows, which were drawn by so many times their equal share.

        Past an end the actions are random, since any leads nowhere.
        """
        steps, replay = self.window_steps, self.replay
        (streams, places), written = replay.following(rows, steps + self.params.n_steps)
        window = {name: replay.column(name, (streams, places)) for name in WINDOW}
        targets = unroll_targets(
            window, written, unroll_steps=steps, n_steps=self.n_steps(rows), gamma=self.signed_gamma
        )
        unrolled = (streams[: steps + 1], places[: steps + 1])
        taken = replay.column("actions", (streams[:steps], places[:steps]))
        weights = chances**-self.params.priority_beta
        arrays = {
            "obs": replay.column("obs", rows),
            "actions": self._with_random_actions(taken, targets.has_state[:-1]),
            "policies": replay.column(SEARCH_POLICY, unrolled),
            "value_targets": targets.values,
            "reward_targets": targets.rewards,
            "has_state": targets.has_state,
            "has_value": targets.has_value,
            "has_reward": targets.has_reward,
            "weights": (weights / weights.mean()).astype(np.float32),
        }
        if self.algorithm.model.sampled is not None:
            arrays["candidates"] = replay.column(SEARCH_ACTIONS, unrolled)
        return to_tensors(arrays, self.algorithm.policy.device)

    def _with_random_actions(self, taken: NDArray[Any], is_known: NDArray[np.bool_]) -> NDArray[Any]:
        """The actions where they are known; elsewhere random ones, of a sampled space some that others took."""
        rng, model = self.rng.generator, self.algorithm.model
        if model.sampled is None:
            return np.where(is_known, taken, rng.integers(model.num_actions, size=taken.shape))
        rows = taken.reshape(-1, *taken.shape[2:])
        others = rows[rng.integers(len(rows), size=taken.shape[:2])]
        return np.where(is_known.reshape(*is_known.shape, *(1,) * (taken.ndim - 2)), taken, others)

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
        network = self.algorithm.target.network
        plan = self.algorithm.policy.plan(obs, rng, model=network, state=self.states_before(rows, network))
        for name, column in plan.targets.items():
            replay.write(name, rows, column)
        self._write_values(rows, plan.values)

    @torch.no_grad()
    def refresh_bootstraps(self, rows: Rows) -> None:
        """Recomputes the bootstrap values that the value targets of these windows use."""
        steps = self.window_steps
        (streams, places), written = self.replay.following(rows, steps + self.params.n_steps + 1)
        window = {name: self.replay.column(name, (streams, places)) for name in ENDS}
        ends = target_ends(window, written, unroll_steps=steps, n_steps=self.n_steps(rows))
        seen = np.take_along_axis(written, ends, axis=0)
        states = (streams[: steps + 1][seen], np.take_along_axis(places, ends, axis=0)[seen])
        obs = to_tensors(self.replay.column("obs", states), self.algorithm.policy.device)
        network = self.algorithm.target.network
        values = network.root(obs, self.states_before(states, network))[1]
        self._write_values(states, values.float().cpu().numpy())

    def _write_values(self, rows: Rows, values: NDArray[np.float32]) -> None:
        """Stores state values in their own rows and as `next_values` of the rows before."""
        self.replay.write("values", rows, values)
        (streams, places), kept = self.replay.predecessors(rows)
        self.replay.write("next_values", (streams[kept], places[kept]), values[kept])
