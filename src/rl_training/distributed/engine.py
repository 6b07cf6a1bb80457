"""`RayEngine`: the parts of a session that run in other processes."""

from __future__ import annotations

from rl_training.distributed.collector import RayCollector
from rl_training.distributed.evaluator import RayEvaluator
from rl_training.distributed.learners import RayLearners
from rl_training.envs.types import Envs
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.collector import Collector
from rl_training.runtime.engine import Engine
from rl_training.runtime.session import Session


class RayEngine(Engine):
    """Each part is remote only where the config wants it."""

    def num_local_envs(self, config: TrainConfig) -> int:
        return 1 if config.backend == "ray" else super().num_local_envs(config)

    def collector(self, session: Session, envs: Envs, *, seed: int) -> Collector:
        if session.config.backend != "ray":
            return super().collector(session, envs, seed=seed)
        envs.close()
        return RayCollector(session.config, session.env, seed=seed, like=envs, device=session.policy.device)

    def peers(self, session: Session) -> RayLearners | None:
        return RayLearners(session.config, session.learner) if session.config.learners > 1 else None

    def evaluator(self, session: Session) -> RayEvaluator | None:
        config = session.config
        wanted = config.eval_in_background and config.eval_interval and config.eval_episodes
        return RayEvaluator(config, session.env) if wanted else None
