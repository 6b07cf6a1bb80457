"""TD3: SAC's learner with a deterministic actor."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training.algorithms.td3 import TD3, TD3Params
from rl_training.envs.types import Spaces
from rl_training.models.actors import PointActor
from rl_training.models.critics import CriticOptions, Critics
from rl_training.models.options import options_from
from rl_training.runtime.controls import EXPLORATION_NOISE, TARGET_NOISE
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.off_policy_learner import OffPolicyLearner


class TD3Learner(OffPolicyLearner):
    Params: ClassVar[type[TD3Params]] = TD3Params
    controls = (*OffPolicyLearner.controls, EXPLORATION_NOISE, TARGET_NOISE)
    mlps_have_precision = True
    params: TD3Params
    algorithm: TD3

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> TD3:
        torso = cls.torso_options(params)
        critics = Critics(spaces, options_from(CriticOptions, params, torso=torso))
        return TD3(PointActor(spaces, torso, params), critics, params)


train_td3 = trainer_for(TD3Learner)
