"""The algorithms: one row each. CLI choices, managed classes, documentation and conformance tests derive from it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rl_training.errors import ConfigError


@dataclass(frozen=True)
class AlgorithmRow:
    name: str
    class_name: str  # of the managed class
    title: str
    paper: str
    year: int
    learner: str  # module:Class, imported when it is used

    def learner_class(self) -> Any:
        module, _, attribute = self.learner.partition(":")
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
            learner="rl_training.runtime.ppo_trainer:PPOLearner",
        ),
    )
}


def algorithm(name: str) -> AlgorithmRow:
    if name not in REGISTRY:
        close = get_close_matches(name, REGISTRY, n=1, cutoff=0.0)[0]
        raise ConfigError(f"unknown algorithm {name!r}; did you mean {close!r}? There are: {', '.join(REGISTRY)}")
    return REGISTRY[name]
