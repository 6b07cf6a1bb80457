"""IMPALA: one pass over each rollout, however old the policy that collected it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.impala import IMPALA, IMPALAParams, VTraceParams
from rl_training.algorithms.peers import ALONE
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import C_BAR, PG_RHO_BAR, RHO_BAR, TARGET_KL
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.policy import LOGPROBS


class IMPALALearner(ActorCriticLearner):
    Params: ClassVar[type[VTraceParams]] = IMPALAParams
    controls = (*ActorCriticLearner.controls, RHO_BAR, C_BAR, PG_RHO_BAR, TARGET_KL)
    reads = (LOGPROBS,)
    bears_stale_data = True
    algorithm_class: ClassVar[type[IMPALA]] = IMPALA
    policy_parts = ("distribution", "head")
    params: VTraceParams
    algorithm: IMPALA

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        rollout = replace(rollout, rewards=self.summed_rewards(rollout))
        epochs = range(self.params.update_epochs)
        yield from self.until_far(self.batch(part) for _ in epochs for part in self.parts(rollout))
        self.update_statistics(rollout)

    def summed_rewards(self, rollout: Rollout) -> torch.Tensor:
        """The rewards with the bonus for what is new, as V-trace has one value function."""
        rewards = self.normalized(self.rewards(rollout), rollout)
        return rewards if self.rnd is None else rewards + self.params.rnd_coef * self.bonus(rollout)

    def parts(self, rollout: Rollout) -> Iterator[Rollout]:
        """The environments in shuffled parts: V-trace needs the rows of each in their order."""
        count = rollout.rewards.shape[1]
        if self.params.num_minibatches == 1:
            yield self.share_of_envs(rollout)
            return
        order = torch.from_numpy(self.rng.generator.permutation(count))
        for chosen in order.tensor_split(min(self.params.num_minibatches, count)):
            part = rollout.of_envs(chosen.to(rollout.rewards.device))
            if part.num_steps:
                yield self.share_of_envs(part)

    def share_of_envs(self, rollout: Rollout) -> Rollout:
        """This learner's environments, of those that did anything."""
        if self.algorithm.peers is ALONE:
            return rollout
        rows = rollout.valid.sum(dim=0)
        active = rows.nonzero()[:, 0]
        return rollout.of_envs(active[self.algorithm.peers.share(rows[active].cpu().numpy())])

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
