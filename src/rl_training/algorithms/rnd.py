"""Random network distillation (Burda et al., 2019, arXiv:1810.12894): a reward for observations that are new.

As in the paper, the bonus has a value function of its own and does not end with episodes. Were it part of the reward,
a policy that reaches its goal would lose the bonuses of the rest of the episode. V-trace has one value function, which
estimates the sum.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.base import Batch, Stateful, UpdateResult
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.data.rollout import Rollout
from rl_training.data.trees import flatten_time, tree_map
from rl_training.models.normalization import RewardNormalizer
from rl_training.models.rnd import RandomDistillation
from rl_training.ops.returns import gae

OPTIONS = ("rnd_coef", "rnd_learning_rate", "rnd_updates", "rnd_batch", "rnd_features")
# Rows. The first errors are many times those that follow. If their scale were remembered for ever, later bonuses
# would be smaller than the noise in the advantages of the reward.
BONUS_MEMORY = 5_000


class RND(Stateful):
    """Pays for what the predictor does not know yet, in units of the deviation of the bonus's discounted sum."""

    state_parts: ClassVar[tuple[str, ...]] = ("network", "optimizer", "normalizer")

    def __init__(self, network: RandomDistillation, params: Any) -> None:
        self.network = network
        self.params = params
        learned = [*network.predictor.parameters(), *network.critic.parameters()]
        self.optimizer = FlatOptimizer(learned, eps=1e-8, kind="adam")
        self.normalizer = RewardNormalizer(memory=BONUS_MEMORY)
        self.returns: Tensor | None = None  # of the bonus in the rollout at hand, where its value function is used

    @torch.no_grad()
    def bonus(self, rollout: Rollout) -> Tensor:
        """The bonus `[T, B]` of the observations that followed each row; rows that never happened earn 0.

        The scale of the inputs takes in the rollout first: no policy depends on it.
        """
        rows = flatten_time(rollout.next_obs)
        happened = rollout.valid.flatten()
        self.network.update_statistics(tree_map(lambda leaf: leaf[happened], rows))
        errors = (self.network(rows) * happened).reshape(rollout.rewards.shape)
        never = torch.zeros_like(rollout.done)
        return self.normalizer(errors, done=never, gamma=self.params.gamma, valid=rollout.valid, source=rollout.source)

    @torch.no_grad()
    def advantages(self, rollout: Rollout, bonus: Tensor) -> Tensor:
        """GAE of the bonus, `[T, B]`. An end is a step like others: the next episode's first observation follows it."""
        obs = tree_map(lambda obs, last: torch.cat([obs, last[None]]), rollout.obs, rollout.last_obs)
        values = self.network.values(flatten_time(obs)).reshape(-1, bonus.shape[1])
        never = torch.zeros_like(rollout.done)
        advantages = gae(
            bonus,
            values[:-1],
            values[1:],
            terminated=never,
            done=never,
            gamma=self.params.gamma,
            gae_lambda=self.params.gae_lambda,
        )
        self.returns = advantages + values[:-1]
        return advantages

    def rows(self, rollout: Rollout) -> Batch:
        """Returns the rows that happened, with the columns that the networks learn from."""
        rows = {"next_obs": rollout.next_obs}
        if self.returns is not None:
            rows |= {"obs": rollout.obs, "returns": self.returns}
        happened = rollout.valid.flatten()
        return tree_map(lambda leaf: leaf[happened], flatten_time(rows))

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the predictor and, where it is used, of the value function."""
        error = self.network(batch["next_obs"]).mean()
        metrics = {"rnd_loss": error}
        if "returns" in batch:
            metrics["rnd_value_loss"] = 0.5 * (self.network.values(batch["obs"]) - batch["returns"]).square().mean()
        loss = torch.stack(list(metrics.values())).sum()
        self.optimizer.step(loss, learning_rate=self.params.rnd_learning_rate, max_grad_norm=None)
        return UpdateResult({name: part.detach() for name, part in metrics.items()})
