"""IMPALA: one pass over each rollout, however old the policy that collected it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch

from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.impala import IMPALA, IMPALAParams, VTraceParams
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import C_BAR, KL_COEF, PG_RHO_BAR, RHO_BAR, TARGET_KL
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.policy import LOGPROBS


class IMPALALearner(ActorCriticLearner):
    Params: ClassVar[type[VTraceParams]] = IMPALAParams
    controls = (*ActorCriticLearner.controls, RHO_BAR, C_BAR, PG_RHO_BAR, KL_COEF, TARGET_KL)
    reads = (LOGPROBS,)
    bears_stale_data = True
    traces_every_pass: ClassVar[bool] = True  # a later pass has targets of the policy as it is then
    algorithm_class: ClassVar[type[IMPALA]] = IMPALA
    policy_parts = ("distribution", "head")
    params: VTraceParams
    algorithm: IMPALA

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        rollout = replace(rollout, rewards=self.summed_rewards(rollout))
        yield from self.until_far(self.passes(rollout))
        self.update_statistics(rollout)

    def summed_rewards(self, rollout: Rollout) -> torch.Tensor:
        """The rewards with the bonus for what is new, as V-trace has one value function."""
        rewards = self.normalized(self.rewards(rollout), rollout)
        return rewards if self.rnd is None else rewards + self.params.rnd_coef * self.bonus(rollout)

    def passes(self, rollout: Rollout) -> Iterator[dict[str, Tree]]:
        """Minibatches of rows, with the traces as they are before the first pass, or before each."""
        rows: dict[str, Tree] = {}
        for epoch in range(self.params.update_epochs):
            if epoch == 0 or self.traces_every_pass:
                rows = self.algorithm.traced(self.batch(rollout))
            yield from self.minibatches(rows, self.number_of_minibatches(rows))

    def update(self, batch: Batch) -> UpdateResult:
        return self.algorithm.peers.averaged(self.algorithm.gradient_step(batch))

    @torch.no_grad()
    def batch(self, rollout: Rollout) -> dict[str, Tree]:
        """The rollout with the values of what followed it as they are now, not as they were when it was collected."""
        following = tree_map(lambda last, final: torch.cat([last, final]), rollout.last_obs, rollout.final_obs)
        values = self.algorithm.policy.values(following)
        names = ("obs", "actions", "behavior_logprobs", "rewards", "terminated", "done", "valid", "final_rows")
        last = rollout.rewards.shape[1]
        return {
            **{name: getattr(rollout, name) for name in names},
            "bootstrap_value": values[:last],
            "final_values": values[last:],
        }


train_impala = trainer_for(IMPALALearner)
