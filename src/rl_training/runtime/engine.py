"""`Engine`: where a session's work is done. This one does all of it in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.envs.types import Envs
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import imported
from rl_training.runtime.collector import Collector, LocalCollector

if TYPE_CHECKING:
    from rl_training.runtime.session import Session

RAY = "rl_training.distributed.engine:RayEngine"
AHEAD = "rl_training.distributed.ahead:AheadCollector"


class Engine:
    """Makes the collector, and what may help the learner: other learners and a background evaluator."""

    def num_local_envs(self, config: TrainConfig) -> int:
        """How many environments this process makes: one tells what those of another process are like."""
        return 1 if config.collect_ahead else config.num_envs

    def collector(self, session: Session, envs: Envs, *, seed: int) -> Collector:
        if session.config.collect_ahead:
            envs.close()
            ahead: Collector = imported(AHEAD)(
                session.config, session.env, seed=seed, like=envs, device=session.policy.device
            )
            return ahead
        return LocalCollector(envs, session.policy, seed=seed, reads=session.learner.reads)

    def peers(self, session: Session) -> Any:
        """Learners that share every update, or None."""
        return None

    def evaluator(self, session: Session) -> Any:
        """Returns an evaluator that works beside training, or None."""
        return None


def engine_for(config: TrainConfig) -> Engine:
    return imported(RAY)() if config.uses_ray else Engine()
