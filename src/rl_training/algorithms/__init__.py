"""The algorithms: named loss functions, then the class that owns networks and optimizers.

`rl_training.algorithms.PPO` is the update rule, `rl_training.algorithms.PPOLearner` what trains it; both are imported
when they are first used. The managed agent of the same name is `rl_training.PPO`.
"""

import importlib
from typing import Any

from rl_training.experiment.registry import REGISTRY


def _exports() -> dict[str, str]:
    """Name → module, from the registry."""
    own = [row for row in REGISTRY.values() if row.is_own]
    rules = {row.class_name: f"rl_training.algorithms.{row.name}" for row in own}
    learners = {str(row.learner).partition(":")[2]: str(row.learner).partition(":")[0] for row in own}
    return rules | learners


def __getattr__(name: str) -> Any:
    exports = _exports()
    if name not in exports:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(exports[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_exports()])
