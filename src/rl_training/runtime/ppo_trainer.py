"""PPO: epochs of shuffled minibatches over each rollout, until the policy has moved far enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.ppo import PPO
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree
from rl_training.envs.types import Spaces
from rl_training.runtime.actor_critic_learner import ActorCriticLearner, ActorCriticParams, value_metrics
from rl_training.runtime.controls import CLIP_COEF, TARGET_KL
from rl_training.runtime.workflows import trainer_for


class PPOParams(ActorCriticParams):
    clip_coef: float = Field(0.2, ge=0)
    clip_value_loss: bool = False
    normalize_advantages: bool = True
    update_epochs: PositiveInt = 4
    num_minibatches: PositiveInt = 4
    target_kl: PositiveFloat | None = Field(None, description="stop the epochs once approx_kl exceeds it")


class PPOLearner(ActorCriticLearner):
    Params: ClassVar[type[PPOParams]] = PPOParams
    shared_method: ClassVar[str | None] = "update"
    controls = (*ActorCriticLearner.controls, CLIP_COEF, TARGET_KL)
    params: PPOParams
    algorithm: PPO

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> PPO:
        return PPO(cls.build_policy(params, spaces), **cls.policy_options(params))

    @classmethod
    def policy_options(cls, params: PPOParams) -> dict[str, Any]:
        names = ("clip_coef", "clip_value_loss", "normalize_advantages", "target_kl")
        return super().policy_options(params) | {name: getattr(params, name) for name in names}

    def learn(self, rollout: Rollout, *, global_step: int) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        yield UpdateResult(value_metrics(batch), num_gradient_steps=0)
        yield from self.epochs(batch, global_step=global_step)
        self.observe(rollout)

    def epochs(self, batch: dict[str, Tree], *, global_step: int) -> Iterator[UpdateResult]:
        for _ in range(self.params.update_epochs):
            for minibatch in self.minibatches(batch, self.params.num_minibatches):
                result = self.algorithm.update(minibatch, global_step=global_step)
                yield result
                if self.algorithm.target_kl is not None and result.metrics["approx_kl"] > self.algorithm.target_kl:
                    return


train_ppo = trainer_for(PPOLearner)
