"""IMPALA: one pass over each rollout, however old the policy that collected it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.impala import IMPALA
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.runtime.actor_critic_learner import ActorCriticLearner, ActorCriticParams
from rl_training.runtime.controls import C_BAR, PG_RHO_BAR, RHO_BAR
from rl_training.runtime.workflows import trainer_for


class VTraceParams(ActorCriticParams):
    """Of IMPALA and its kin."""

    gae_lambda: float = Field(1.0, ge=0, le=1, description="decay of the V-trace traces; the paper's is 1")
    rho_bar: float = Field(1.0, ge=0, description="bound on the ratios in V-trace's temporal differences")
    c_bar: float = Field(1.0, ge=0, description="bound on the ratios in V-trace's traces")
    rollout_steps: PositiveInt = Field(20, description="rows of every environment in a rollout")
    num_minibatches: PositiveInt = Field(1, description="parts of a pass, each of some environments' whole rollouts")
    update_epochs: PositiveInt = Field(1, description="passes over each rollout")
    normalize_advantages: bool = False


class IMPALAParams(VTraceParams):
    pg_rho_bar: float = Field(1.0, ge=0, description="bound on the ratios in the policy gradient")


class IMPALALearner(ActorCriticLearner):
    """`version` counts the rollouts learned from, as the loop counts the policies that it publishes."""

    Params: ClassVar[type[VTraceParams]] = IMPALAParams
    controls = (*ActorCriticLearner.controls, RHO_BAR, C_BAR, PG_RHO_BAR)
    bears_stale_data = True
    shared_method = "descend"
    state_scalars: ClassVar[tuple[str, ...]] = ("version",)
    params: VTraceParams
    algorithm: IMPALA

    def __init__(self, params: Any, spaces: Spaces, *, num_envs: int, seed: int, device: torch.device) -> None:
        super().__init__(params, spaces, num_envs=num_envs, seed=seed, device=device)
        self.version = 0

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> IMPALA:
        return IMPALA(cls.build_policy(params, spaces), **cls.policy_options(params))

    @classmethod
    def policy_options(cls, params: Any) -> dict[str, Any]:
        names = (*(control.name for control in cls.controls), "normalize_advantages")
        return super().policy_options(params) | {name: getattr(params, name) for name in names}

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        lags = self.version - rollout.policy_version.to(rollout.valid.device)[rollout.valid]
        self.version += 1
        if not len(lags):  # short rollouts can be all resets
            return
        yield UpdateResult({"policy_lag": lags.float().mean()}, num_gradient_steps=0)
        rollout = replace(rollout, rewards=self.scaled_rewards(rollout))
        for _ in range(self.params.update_epochs):
            for part in self.parts(rollout):
                yield self.algorithm.update(self.batch(part), global_step=global_step)
        self.observe(rollout)

    def parts(self, rollout: Rollout) -> Iterator[Rollout]:
        """The environments in shuffled parts: V-trace needs the rows of each in their order."""
        count = rollout.rewards.shape[1]
        if self.params.num_minibatches == 1:
            yield rollout
            return
        order = torch.from_numpy(self.rng.generator.permutation(count))
        for chosen in order.tensor_split(min(self.params.num_minibatches, count)):
            part = rollout.of_envs(chosen.to(rollout.rewards.device))
            if part.num_steps:
                yield part

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
