"""What the policy-gradient learners share: the policy's parameters, normalisation, advantages, minibatches."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, flatten_time, tree_leaves, tree_map
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic, PolicyOptions
from rl_training.models.normalization import RewardNormalizer
from rl_training.models.torsos import TorsoOptions
from rl_training.ops.losses import explained_variance
from rl_training.ops.returns import gae
from rl_training.runtime.controls import ENT_COEF, GAE_LAMBDA, GAMMA, LEARNING_RATE, MAX_GRAD_NORM, VF_COEF, Control
from rl_training.runtime.learner import Learner
from rl_training.runtime.params import Params


class PolicyParams(Params):
    """Of every learner with an `ActorCritic` policy."""

    learning_rate: PositiveFloat = 3e-4
    gamma: float = Field(0.99, ge=0, le=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)
    ent_coef: float = Field(0.0, ge=0)
    max_grad_norm: PositiveFloat = 0.5
    rollout_steps: PositiveInt = Field(128, description="rows of every environment in a rollout")
    optimizer: Literal["adam", "rmsprop"] = "adam"
    adam_eps: PositiveFloat = 1e-5
    hidden_sizes: tuple[PositiveInt, ...] = (64, 64)
    activation: Literal["tanh", "relu", "silu", "elu"] = "tanh"
    cnn: Literal["nature", "impala"] = "nature"
    share_torso: bool | None = Field(None, description="policy and value share features; default: for images only")
    log_std_init: float = 0.0
    normalize_obs: bool = False
    normalize_reward: bool = False


class ActorCriticParams(PolicyParams):
    """Of the learners with one loss for policy and value."""

    vf_coef: float = Field(0.5, ge=0)


class ActorCriticLearner(Learner):
    """A learner of `ActorCritic` policies; `learn` remains to be said."""

    Params: ClassVar[type[Params]] = ActorCriticParams
    controls: ClassVar[tuple[Control, ...]] = (LEARNING_RATE, ENT_COEF, VF_COEF, GAMMA, GAE_LAMBDA, MAX_GRAD_NORM)
    params: PolicyParams

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.reward_normalizer = RewardNormalizer()

    state_parts: ClassVar[tuple[str, ...]] = (*Learner.state_parts, "reward_normalizer")

    @classmethod
    def build_policy(cls, params: Any, spaces: Spaces) -> ActorCritic:
        return ActorCritic(spaces, cls.model_options(params))

    @classmethod
    def model_options(cls, params: Any) -> PolicyOptions:
        return PolicyOptions(
            torso=TorsoOptions(params.hidden_sizes, params.activation, params.cnn),
            share_torso=params.share_torso,
            log_std_init=params.log_std_init,
            normalize_obs=params.normalize_obs,
        )

    @classmethod
    def policy_options(cls, params: Any) -> dict[str, Any]:
        """What the algorithm takes beside the policy."""
        names = (
            "learning_rate",
            "ent_coef",
            "vf_coef",
            "max_grad_norm",
            "gamma",
            "gae_lambda",
            "adam_eps",
            "optimizer",
        )
        return {name: getattr(params, name) for name in names}

    @property
    def rollout_steps(self) -> int:
        return self.params.rollout_steps

    def flat_advantages(self, rollout: Rollout) -> dict[str, Tree]:
        """The valid rows as a batch with `advantages` (GAE) and `returns`."""
        advantages = self.advantages(rollout)
        return rollout.flat(advantages=advantages, returns=advantages + rollout.values)

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """GAE of every row, `[T, B]`."""
        return gae(
            self.scaled_rewards(rollout),
            rollout.values,
            rollout.next_values,
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=self.algorithm.gamma,
            gae_lambda=self.algorithm.gae_lambda,
        )

    def rewards(self, rollout: Rollout) -> torch.Tensor:
        """What is to be maximised, `[T, B]`."""
        return rollout.rewards

    def scaled_rewards(self, rollout: Rollout) -> torch.Tensor:
        rewards = self.rewards(rollout)
        if not self.params.normalize_reward:
            return rewards
        return self.reward_normalizer(
            rewards, done=rollout.done, gamma=self.algorithm.gamma, valid=rollout.valid, source=rollout.source
        )

    def observe(self, rollout: Rollout) -> None:
        """Moves the observation statistics, after the updates: the policy that is updated is the one that acted."""
        if self.params.normalize_obs:
            self.algorithm.policy.observe(flatten_time(rollout.obs))

    def minibatches(self, batch: dict[str, Tree], count: int) -> Iterator[dict[str, Tree]]:
        """A shuffled pass over the batch in `count` parts; one gather a pass, then slices."""
        first = tree_leaves(batch)[0]
        rows = len(first)
        order = torch.from_numpy(self.rng.generator.permutation(rows)).to(first.device)
        sizes = np.diff(np.linspace(0, rows, min(count, rows) + 1, dtype=int)).tolist()
        parts = tree_map(lambda leaf: leaf.index_select(0, order).split(sizes), batch)
        for part in range(len(sizes)):
            yield tree_map(itemgetter(part), parts)


def value_metrics(batch: dict[str, Tree]) -> dict[str, Any]:
    """How well the values that the rollout was collected with foretold its returns."""
    return {"explained_variance": explained_variance(batch["values"], batch["returns"])}
