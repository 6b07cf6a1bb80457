"""The algorithms: one row each. CLI choices, managed classes, documentation and conformance tests derive from it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rl_training.blame import told
from rl_training.errors import ConfigError, did_you_mean

PLUGINS = "rl_training.algorithms"  # the group of entry points

_loaded: set[str] = set()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AlgorithmRow:
    name: str
    class_name: str  # of the managed class
    title: str
    paper: str
    year: int
    family: str = ""
    scope: str = ""  # what of the paper is here
    learner: str | type = ""  # `module:Class`, imported when it is used, or the class; default: the package's own
    presets: str | Path = ""  # the folder of its YAML files; default: the package's own

    def __post_init__(self) -> None:
        if not self.learner:
            own = f"rl_training.runtime.{self.name}_trainer:{self.class_name}Learner"
            object.__setattr__(self, "learner", own)

    @property
    def is_own(self) -> bool:
        """Whether the algorithm belongs to the package."""
        return isinstance(self.learner, str) and self.learner.startswith("rl_training.")

    def learner_class(self) -> Any:
        return imported(self.learner) if isinstance(self.learner, str) else self.learner


def imported(name: str) -> Any:
    """Imports `module:attribute`. Rows are data, so that what stands above this package is found by its name."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


REGISTRY: dict[str, AlgorithmRow] = {
    row.name: row
    for row in (
        AlgorithmRow(
            name="ppo",
            class_name="PPO",
            title="Proximal Policy Optimization",
            paper="arXiv:1707.06347",
            year=2017,
            family="policy gradient",
            scope="clipped surrogate; vectors, images, mappings; all action spaces but Dict and Tuple",
        ),
        AlgorithmRow(
            name="a2c",
            class_name="A2C",
            title="Advantage Actor-Critic",
            paper="arXiv:1602.01783",
            year=2016,
            family="policy gradient",
            scope="the synchronous form of A3C; spaces as PPO",
        ),
        AlgorithmRow(
            name="trpo",
            class_name="TRPO",
            title="Trust Region Policy Optimization",
            paper="arXiv:1502.05477",
            year=2015,
            family="policy gradient",
            scope="natural gradient by conjugate gradient, line search on surrogate and KL; spaces as PPO",
        ),
        AlgorithmRow(
            name="recurrent_ppo",
            class_name="RecurrentPPO",
            title="Recurrent PPO",
            paper="arXiv:1707.06347",
            year=2017,
            family="policy gradient",
            scope="PPO on sequences with an LSTM or a GRU; spaces as PPO",
        ),
        AlgorithmRow(
            name="impala",
            class_name="IMPALA",
            title="Importance Weighted Actor-Learner Architecture",
            paper="arXiv:1802.01561",
            year=2018,
            family="policy gradient",
            scope="V-trace on rollouts of any policy version; actors in the learner's process or on Ray",
        ),
        AlgorithmRow(
            name="appo",
            class_name="APPO",
            title="Asynchronous PPO",
            paper="arXiv:1912.00167",
            year=2019,
            family="policy gradient",
            scope="IMPALA with PPO's clipped surrogate and an optional target network; actors as IMPALA's",
        ),
        AlgorithmRow(
            name="ppg",
            class_name="PPG",
            title="Phasic Policy Gradient",
            paper="arXiv:2009.04416",
            year=2020,
            family="policy gradient",
            scope="one trunk with a detached value head, auxiliary phases over all stored rollouts; spaces as PPO",
        ),
        AlgorithmRow(
            name="gail",
            class_name="GAIL",
            title="Generative Adversarial Imitation Learning",
            paper="arXiv:1606.03476",
            year=2016,
            family="imitation",
            scope="PPO as the generator, behaviour cloning as a warm start; own files and Minari; spaces as PPO",
        ),
        AlgorithmRow(
            name="dreamer",
            class_name="Dreamer",
            title="DreamerV3",
            paper="arXiv:2301.04104",
            year=2023,
            family="world model",
            scope="RSSM, imagination, replay critic; vectors, images, mappings; Discrete, MultiDiscrete and Box",
        ),
        AlgorithmRow(
            name="muzero",
            class_name="MuZero",
            title="MuZero",
            paper="arXiv:1911.08265",
            year=2019,
            family="search",
            scope="PUCT over a learned model, prioritised replay, reanalyse; vectors, images; all or sampled actions",
        ),
        AlgorithmRow(
            name="gumbel_muzero",
            class_name="GumbelMuZero",
            title="Gumbel MuZero",
            paper="ICLR 2022",
            year=2022,
            family="search",
            scope="sequential halving over Gumbel-top-m, completed Q-values; otherwise and spaces as MuZero",
        ),
        AlgorithmRow(
            name="efficientzero",
            class_name="EfficientZero",
            title="EfficientZero",
            paper="arXiv:2111.00210",
            year=2021,
            family="search",
            scope="MuZero with consistency, value prefix, off-policy correction and reanalyse; spaces as MuZero",
        ),
        AlgorithmRow(
            name="scalezero",
            class_name="ScaleZero",
            title="ScaleZero",
            paper="arXiv:2509.07945",
            year=2025,
            family="search",
            scope="transformer with mixtures of experts, several tasks in one model, staged adapters; spaces as MuZero",
        ),
        AlgorithmRow(
            name="dqn",
            class_name="DQN",
            title="Deep Q-Network",
            paper="arXiv:1312.5602",
            year=2013,
            family="off-policy",
            scope="double, dueling, n-step, prioritised, C51 or quantiles, noisy: Rainbow by flags; Discrete actions",
        ),
        AlgorithmRow(
            name="sac",
            class_name="SAC",
            title="Soft Actor-Critic",
            paper="arXiv:1812.05905",
            year=2018,
            family="off-policy",
            scope="temperature learned, n-step, HER; options of TQC, DroQ and CrossQ; Box and Discrete actions",
        ),
        AlgorithmRow(
            name="td3",
            class_name="TD3",
            title="Twin Delayed DDPG",
            paper="arXiv:1802.09477",
            year=2018,
            family="off-policy",
            scope="target smoothing and delayed policy on SAC's critics, with their options; Box actions",
        ),
    )
}


def register(row: AlgorithmRow) -> None:
    """Adds an algorithm from outside of the package: its name, its presets and its managed class are then known."""
    taken = REGISTRY.get(row.name) or next((r for r in REGISTRY.values() if r.class_name == row.class_name), None)
    if taken is not None and taken != row:
        raise ConfigError(f"the algorithm {row.name!r} ({row.class_name}) is there already: {taken.title}")
    if not (row.name.isidentifier() and row.class_name.isidentifier()):
        raise ConfigError(f"an algorithm needs a name and a class_name, got {row.name!r} and {row.class_name!r}")
    REGISTRY[row.name] = row


def load_plugins() -> None:
    """Registers what installed packages offer as entry points of the group `rl_training.algorithms`, once each.

    An entry point is an `AlgorithmRow` or several. One that cannot be loaded is told, and the others are not lost.
    """
    for point in entry_points(group=PLUGINS):
        if point.value in _loaded:
            continue
        _loaded.add(point.value)
        try:
            found = point.load()
            for row in found if isinstance(found, Iterable) else [found]:
                register(row)
        except Exception as error:  # noqa: BLE001  # a plugin is code of somebody else
            _log.warning("the algorithm %s (%s) cannot be loaded: %s", point.name, point.value, told(error))


def find_algorithm(name: str) -> AlgorithmRow | None:
    if name not in REGISTRY:
        load_plugins()
    return REGISTRY.get(name)


def algorithm(name: str) -> AlgorithmRow:
    row = find_algorithm(name)
    if row is None:
        raise ConfigError(f"unknown algorithm {name!r}; {did_you_mean(name, REGISTRY)}")
    return row
