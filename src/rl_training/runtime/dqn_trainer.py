"""DQN: Q-learning from a replay, with the flags of Rainbow."""

from __future__ import annotations

from typing import Any, ClassVar

from rl_training.algorithms.dqn import DQN, DQNParams
from rl_training.envs.masks import seen_space
from rl_training.envs.types import Spaces
from rl_training.models.options import options_from
from rl_training.models.q_network import QNetwork, QOptions, QPolicy
from rl_training.models.returns import ReturnOptions
from rl_training.models.torsos import idle_beside_cnn
from rl_training.runtime.controls import EPSILON, MAX_GRAD_NORM
from rl_training.runtime.manager import trainer_for
from rl_training.runtime.off_policy_learner import OffPolicyLearner


class DQNLearner(OffPolicyLearner):
    Params: ClassVar[type[DQNParams]] = DQNParams
    controls = (*OffPolicyLearner.controls, EPSILON, MAX_GRAD_NORM)
    params: DQNParams
    algorithm: DQN

    @classmethod
    def idle(cls, spaces: Spaces) -> dict[str, str]:
        return super().idle(spaces) | idle_beside_cnn(seen_space(spaces), "hidden_sizes")

    @classmethod
    def build_algorithm(cls, params: Any, spaces: Spaces) -> DQN:
        parts = {"torso": cls.torso_options(params), "returns": options_from(ReturnOptions, params)}
        network = QNetwork(spaces, options_from(QOptions, params, **parts))
        return DQN(QPolicy(network, params, first_action=int(getattr(spaces.action, "start", 0))), params)


train_dqn = trainer_for(DQNLearner)
