"""APPO: IMPALA's learner, with several passes over each rollout."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt

from rl_training.algorithms.appo import APPO
from rl_training.envs.types import Spaces
from rl_training.runtime.actor_critic_learner import ActorCriticLearner
from rl_training.runtime.controls import C_BAR, CLIP_COEF, KL_COEF, RHO_BAR
from rl_training.runtime.impala_trainer import IMPALALearner, VTraceParams
from rl_training.runtime.workflows import trainer_for


class APPOParams(VTraceParams):
    clip_coef: float = Field(0.2, ge=0)
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the target network, or to the policy that acted")
    target_update_interval: PositiveInt | None = Field(
        None, description="updates between copies to the target network, which gives V-trace its ratios; default: none"
    )
    update_epochs: PositiveInt = Field(4, description="passes over each rollout")
    normalize_advantages: bool = True


class APPOLearner(IMPALALearner):
    Params = APPOParams
    controls = (*ActorCriticLearner.controls, RHO_BAR, C_BAR, CLIP_COEF, KL_COEF)
    params: APPOParams
    algorithm: APPO

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> APPO:
        options = cls.policy_options(params) | {"target_update_interval": params.target_update_interval}
        return APPO(cls.build_policy(params, spaces), **options)


train_appo = trainer_for(APPOLearner)
