"""SAC: the actor and the critics of soft values, for Box and Discrete actions."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium.spaces import Discrete

from rl_training.algorithms.sac import SAC, SACParams
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.actors import CategoricalActor, make_actor
from rl_training.models.critics import CriticOptions, Critics
from rl_training.models.options import options_from
from rl_training.runtime.controls import SAC_ENT_COEF, TARGET_ENTROPY
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.off_policy_learner import OffPolicyLearner


class SACLearner(OffPolicyLearner):
    Params: ClassVar[type[SACParams]] = SACParams
    controls = (*OffPolicyLearner.controls, SAC_ENT_COEF, TARGET_ENTROPY)
    mlps_have_precision = True
    params: SACParams
    algorithm: SAC

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        without_noise = {"noise_correlation": "on Discrete actions"} if isinstance(spaces.action, Discrete) else {}
        return super().idle(spaces) | without_noise

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> SAC:
        torso = cls.torso_options(params)
        actor = make_actor(spaces, torso, noise_correlation=params.noise_correlation)
        if isinstance(actor, CategoricalActor) and params.num_quantiles > 1:
            raise ConfigError("num_quantiles: quantiles need a Box of actions; leave it out, or use DQN's distribution")
        return SAC(actor, Critics(spaces, options_from(CriticOptions, params, torso=torso)), params)


train_sac = trainer_for(SACLearner)
