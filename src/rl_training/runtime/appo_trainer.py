"""APPO: IMPALA's learner, with several passes over each rollout."""

from __future__ import annotations

from rl_training.algorithms.appo import APPO, APPOParams
from rl_training.runtime.actor_critic_learner import BESIDE_LEARNING_RATE
from rl_training.runtime.controls import C_BAR, CLIP_COEF, KL_COEF, KL_LEARNING_RATE, RHO_BAR, TARGET_KL
from rl_training.runtime.impala_trainer import IMPALALearner
from rl_training.runtime.manager import trainer_for


class APPOLearner(IMPALALearner):
    Params = APPOParams
    controls = (KL_LEARNING_RATE, *BESIDE_LEARNING_RATE, RHO_BAR, C_BAR, CLIP_COEF, KL_COEF, TARGET_KL)
    algorithm_class = APPO
    traces_every_pass = False
    params: APPOParams
    algorithm: APPO


train_appo = trainer_for(APPOLearner)
