"""Recording demonstrations: an evaluation that keeps what it saw."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.demonstrations import Demonstrations, concatenate
from rl_training.data.trees import tree_map
from rl_training.envs.types import EnvStep
from rl_training.runtime.evaluation import episode_shares
from rl_training.runtime.session import Session


def record_demonstrations(session: Session, *, episodes: int, seed: int, deterministic: bool = True) -> Demonstrations:
    """Whole episodes of the session's policy, one after the other."""
    running: dict[int, list[dict[str, Any]]] = defaultdict(list)
    finished: dict[int, list[Demonstrations]] = defaultdict(list)

    def watch(obs: Any, actions: NDArray[Any], step: EnvStep) -> None:
        for i in step.valid.nonzero()[0].tolist():
            row = {
                "obs": tree_map(lambda leaf, i=i: leaf[i], obs),
                "actions": actions[i],
                "rewards": step.rewards[i],
                "terminated": step.terminated[i],
                "truncated": step.truncated[i],
            }
            running[i].append(row)
            if step.terminated[i] or step.truncated[i]:
                columns = tree_map(lambda *leaves: torch.from_numpy(np.stack(leaves)), *running.pop(i))
                finished[i].append(Demonstrations(**columns, env_id=session.config.env_id))

    session.evaluate(episodes, deterministic=deterministic, seed=seed, watch=watch)
    shares = episode_shares(episodes, session.eval_envs.get(episodes).num_envs)
    return concatenate([episode for i, share in enumerate(shares) for episode in finished[i][:share]])
