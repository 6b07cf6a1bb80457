"""PPO: epochs of shuffled minibatches over each rollout, until the policy has moved far enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm
from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.ppo import PPO, PPOParams
from rl_training.data.rollout import Rollout
from rl_training.data.trees import Tree
from rl_training.envs.kinds import Kind
from rl_training.runtime.actor_critic_learner import BESIDE_LEARNING_RATE, NORMALIZED, ActorCriticLearner
from rl_training.runtime.controls import CLIP_COEF, KL_LEARNING_RATE, TARGET_KL
from rl_training.runtime.manager import trainer_for

DECAYING = {"learning_rate_schedule": "linear"}


class PPOLearner(ActorCriticLearner):
    Params: ClassVar[type[PPOParams]] = PPOParams
    bears_one_old_rollout = True  # its ratios are to the policy that acted
    defaults_by_kind: ClassVar[Mapping[Kind, Mapping[str, Any]]] = {
        "vectors": {"update_epochs": 10, "batch_size": 64, **DECAYING},
        "continuous": {"rollout_steps": 256, "update_epochs": 10, "batch_size": 64, **NORMALIZED, **DECAYING},
        "grids": {"update_epochs": 4, "batch_size": 256, "ent_coef": 0.01, **DECAYING},
        # As in the Atari experiments of Schulman et al. (2017).
        "images": {
            "learning_rate": 2.5e-4,
            "clip_coef": 0.1,
            "clip_coef_schedule": "linear",
            "ent_coef": 0.01,
            **DECAYING,
        },
    }
    controls = (KL_LEARNING_RATE, *BESIDE_LEARNING_RATE, CLIP_COEF, TARGET_KL)
    algorithm_class: ClassVar[type[ActorCriticAlgorithm]] = PPO
    params: PPOParams
    algorithm: PPO

    def updates(self, rollout: Rollout) -> Iterator[UpdateResult]:
        batch = self.flat_advantages(rollout)
        self.note_values(batch)
        yield from self.epochs(batch)
        self.update_statistics(rollout)

    def epochs(self, batch: dict[str, Tree]) -> Iterator[UpdateResult]:
        parts, epochs = self.number_of_minibatches(batch), range(self.params.update_epochs)
        return self.until_far(minibatch for _ in epochs for minibatch in self.minibatches(batch, parts))


train_ppo = trainer_for(PPOLearner)
