"""The base of the policy-gradient learners: building the policy, normalisation, advantages, minibatches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm, ActorCriticParams
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.params import Params
from rl_training.algorithms.peers import ALONE
from rl_training.algorithms.rnd import RND
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, tree_leaves, tree_map
from rl_training.envs.kinds import Kind
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic, PolicyOptions
from rl_training.models.normalization import RewardNormalizer
from rl_training.models.options import options_from
from rl_training.models.rnd import RandomDistillation
from rl_training.models.seams import make_own, refuse_missing
from rl_training.models.torsos import TorsoOptions, idle_beside_cnn, idle_without_cnn
from rl_training.ops.losses import explained_variance
from rl_training.ops.returns import gae
from rl_training.runtime.controls import (
    ENT_COEF,
    GAE_LAMBDA,
    GAMMA,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    RND_COEF,
    RND_LEARNING_RATE,
    VF_COEF,
    Control,
)
from rl_training.runtime.learner import Learner, seeded

OF_RND = (RND_COEF, RND_LEARNING_RATE)
BESIDE_LEARNING_RATE: tuple[Control, ...] = (ENT_COEF, VF_COEF, GAMMA, GAE_LAMBDA, MAX_GRAD_NORM, *OF_RND)
NORMALIZED = {"normalize_obs": True, "normalize_reward": True}
POLICY_PROTOCOL = ("device", "initial_state", "act", "evaluate_actions", "values", "env_actions", "update_statistics")


class ActorCriticLearner(Learner):
    """A learner of `ActorCritic` policies; `updates` remains to be said."""

    Params: ClassVar[type[Params]] = ActorCriticParams
    controls: ClassVar[tuple[Control, ...]] = (LEARNING_RATE, *BESIDE_LEARNING_RATE)
    shares_updates: ClassVar[bool] = True
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = {
        "continuous": NORMALIZED,
        "grids": {"ent_coef": 0.01},
        "images": {"ent_coef": 0.01},
    }
    algorithm_class: ClassVar[type[ActorCriticAlgorithm]]
    policy_parts: ClassVar[tuple[str, ...]] = ()  # what the algorithm asks of a policy beside `POLICY_PROTOCOL`
    params: Any  # those of the algorithm, `PolicyParams` at least
    algorithm: Any

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.reward_normalizer = RewardNormalizer()
        self.rnd = self.build_rnd(seed, device) if params.rnd else None

    state_parts: ClassVar[tuple[str, ...]] = (*Learner.state_parts, "reward_normalizer", "rnd")

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        seen = seen_space(spaces)
        return idle_beside_cnn(seen, "hidden_sizes", "activation") | idle_without_cnn(seen)

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> ActorCriticAlgorithm:
        return cls.algorithm_class(cls.build_policy(params, spaces), params)

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> Any:
        """The user's policy, if there is one, or else the algorithm's."""
        if params.policy is None:
            return cls.usual_policy(params, spaces)
        policy = make_own("policy", params.policy, spaces, **params.policy_kwargs)
        refuse_missing("policy", params.policy, policy, [*POLICY_PROTOCOL, *cls.policy_parts])
        return policy

    @classmethod
    def usual_policy(cls, params: Any, spaces: Spaces) -> ActorCritic:
        return ActorCritic(spaces, cls.model_options(params))

    @classmethod
    def model_options(cls, params: Any) -> PolicyOptions:
        return options_from(PolicyOptions, params, torso=options_from(TorsoOptions, params))

    def build_rnd(self, seed: int, device: torch.device) -> RND:
        options = options_from(TorsoOptions, self.params)
        with seeded(seed, device):
            return RND(RandomDistillation(self.spaces, options, self.params.rnd_features), self.params)

    @property
    def rollout_steps(self) -> int:
        return self.params.rollout_steps

    def learn(self, rollout: Rollout) -> Iterator[UpdateResult]:
        """A short rollout can be all resets, which teach nothing."""
        if rollout.num_steps:
            yield from self.updates(rollout)
            yield from self.distil(rollout)

    @abstractmethod
    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        """The updates on a rollout in which at least one row happened."""

    def begin_episodes(self) -> None:
        self.reward_normalizer.traces.clear()
        if self.rnd is not None:
            self.rnd.normalizer.traces.clear()

    def flat_advantages(self, rollout: Rollout) -> dict[str, Tree]:
        """The valid rows as a batch with `advantages` (GAE) and `returns`."""
        advantages, returns = self.advantages(rollout)
        return rollout.flat(advantages=advantages, returns=returns)

    def advantages(self, rollout: Rollout) -> tuple[torch.Tensor, torch.Tensor]:
        """GAE of every row `[T, B]`, with that of the bonus for what is new, and the returns without it."""
        advantages = gae(
            self.normalized(self.rewards(rollout), rollout),
            rollout.values,
            rollout.next_values,
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=self.params.gamma,
            gae_lambda=self.params.gae_lambda,
        )
        returns = advantages + rollout.values
        if self.rnd is None:
            return advantages, returns
        return advantages + self.params.rnd_coef * self.rnd.advantages(rollout, self.bonus(rollout)), returns

    def bonus(self, rollout: Rollout) -> torch.Tensor:
        """The bonus for what is new, `[T, B]`."""
        assert self.rnd is not None
        bonus = self.rnd.bonus(rollout)
        self.note(rnd_bonus=bonus[rollout.valid].mean())
        return bonus

    def rewards(self, rollout: Rollout) -> torch.Tensor:
        """The rewards `[T, B]` that are to be maximised; rows that never happened pay 0."""
        return rollout.rewards

    def distil(self, rollout: Rollout) -> Iterator[UpdateResult]:
        """Steps of the network that tells what is new, after all updates that its bonus was for."""
        if self.rnd is None:
            return
        rows = self.rnd.rows(rollout)
        for _ in range(self.params.rnd_updates):
            drawn = self.rng.generator.integers(rollout.num_steps, size=self.params.rnd_batch)
            chosen = torch.from_numpy(drawn).to(rollout.valid.device)
            yield self.rnd.update(tree_map(lambda leaf, chosen=chosen: leaf[chosen], rows))

    def normalized(self, rewards: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        if not self.params.normalize_reward:
            return rewards
        return self.reward_normalizer(
            rewards, done=rollout.done, gamma=self.params.gamma, valid=rollout.valid, source=rollout.source
        )

    def update_statistics(self, rollout: Rollout) -> None:
        """Moves the observation statistics, after the updates: the policy that is updated is the one that acted."""
        if self.params.normalize_obs:
            self.algorithm.policy.update_statistics(flatten_time(rollout.obs))

    def number_of_minibatches(self, batch: dict[str, Tree]) -> int:
        """As many as the parameters say, or as give each about `batch_size` rows."""
        if self.params.batch_size is None:
            return self.params.num_minibatches
        return max(1, round(int(self.rows_of_items(batch).sum()) / self.params.batch_size))

    def minibatches(self, batch: dict[str, Tree], count: int) -> Iterator[dict[str, Tree]]:
        """A shuffled pass over the batch in `count` parts, of which each learner has its share."""
        first = tree_leaves(batch)[0]
        rows = len(first)
        order = torch.from_numpy(self.rng.generator.permutation(rows)).to(first.device)
        sizes = np.diff(np.linspace(0, rows, min(count, rows) + 1, dtype=int)).tolist()
        parts = tree_map(lambda leaf: leaf.index_select(0, order).split(sizes), batch)
        for part in range(len(sizes)):
            yield self.share(tree_map(itemgetter(part), parts))

    def share(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        """This learner's part of a batch, which is all of it unless others share the update."""
        if self.algorithm.peers is ALONE:
            return batch
        chosen = self.algorithm.peers.share(self.rows_of_items(batch))
        return tree_map(lambda leaf: leaf[chosen], batch)

    def rows_of_items(self, batch: dict[str, Tree]) -> NDArray[np.integer]:
        """How many rows each item of a batch has; the items are rows themselves, unless a learner has others."""
        return np.ones(len(tree_leaves(batch)[0]), dtype=np.int64)

    def update(self, batch: Batch) -> UpdateResult:
        """One update, with metrics over the rows of all learners."""
        return self.algorithm.peers.averaged(self.algorithm.update(batch))

    def until_far(self, batches: Iterable[Batch]) -> Iterator[UpdateResult]:
        """Updates on batches, until they have moved the policy by a KL of more than `target_kl`.

        The first finds it as it was before them: further from the policy that acted, where that one is older.
        """
        moved_before: float | None = None
        for batch in batches:
            result = self.update(batch)
            yield result
            if self.params.target_kl is None:
                continue
            moved = float(result.metrics["approx_kl"])
            moved_before = moved if moved_before is None else moved_before
            if moved - moved_before > self.params.target_kl:
                return

    def note_values(self, batch: dict[str, Tree]) -> None:
        """Notes how well the values that the rollout was collected with foretold its returns."""
        self.note(explained_variance=float(explained_variance(batch["values"], batch["returns"])))
