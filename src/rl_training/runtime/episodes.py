"""`EpisodeTracker`: what the running episodes have paid, and how long they are."""

from __future__ import annotations

import numpy as np

from rl_training.data.rollout import Episode
from rl_training.envs.infos import InfoMeans
from rl_training.envs.types import Envs, EnvStep


class EpisodeTracker:
    """Returns and lengths of the running episodes, in raw rewards."""

    def __init__(self, envs: Envs) -> None:
        self.returns = np.zeros(envs.num_envs)
        self.lengths = np.zeros(envs.num_envs, dtype=np.int64)
        self.tasks = envs.tasks or ("",) * envs.num_envs
        self.infos = InfoMeans(envs.num_envs)

    def running(self, index: int) -> Episode:
        """The episode of an environment as far as it has come."""
        told = self.infos.means(index)
        return Episode(float(self.returns[index]), int(self.lengths[index]), self.tasks[index], told)

    def add(self, step: EnvStep) -> list[tuple[int, Episode]]:
        """(environment, episode) for each that ended in this step."""
        self.returns += step.rewards
        self.lengths += step.valid
        if step.infos:
            self.infos.add(step.infos)
        done = step.terminated | step.truncated
        if not np.count_nonzero(done):  # ten times as quick as `any`
            return []
        ended = [(i, self.running(i)) for i in done.nonzero()[0].tolist()]
        self.returns[done] = 0.0
        self.lengths[done] = 0
        self.infos.restart(done)
        return ended
