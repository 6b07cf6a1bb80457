"""Fine-tuning: a new run that starts from the networks and normalisers of another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from rl_training.algorithms.base import Stateful
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.errors import CheckpointError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.fitting import load_fitting, loading_from, loading_part
from rl_training.runtime.session import Session
from rl_training.runtime.session_envs import refuse_other_spaces


def start_from(session: Session, path: Path | str, which: str | int = "latest") -> None:
    """Gives a new session what the policy of a run, a checkpoint or a saved agent has learned.

    Optimizers, counters, replays and random streams are the session's own. Nothing that the file names is imported:
    the networks are those of the session's config.
    """
    state = load_checkpoint(Path(path), which)
    with loading_from(path):
        refuse_other_spaces(session.config.env_id, session.spaces, state)
        with loading_part("learner"):
            learned = state["learner"]
            take_over(session.learner.algorithm, learned["algorithm"])
            take_over(session.learner, learned)
    session.learner.begin_episodes()
    if not session.learner.algorithm.is_finite():
        raise CheckpointError(f"{path}: the checkpoint's weights are not finite; start from an older one")
    if session.peers is not None:
        session.peers.load_state_dict(session.learner.state_dict())


def take_over(part: Stateful, stored: Mapping[str, Any]) -> None:
    """Loads every network and normaliser that both have; the policy has to fit.

    A copy that lags behind the policy, which another algorithm's run does not have, starts as the policy.
    """
    for name in part.state_parts:
        own = getattr(part, name)
        if isinstance(own, nn.Module) and (name in stored or name == "policy"):
            load_fitting(own, name, stored)
        elif isinstance(own, TargetNetwork):
            network = stored.get(name, {}).get("network", stored["policy"])
            load_fitting(own.network, name, {name: network})
