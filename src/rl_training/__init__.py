"""Deep reinforcement learning on PyTorch and Gymnasium. Names are imported when they are first used."""

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "TrainConfig": "rl_training.experiment.config",
    "TrainResult": "rl_training.runtime.workflows",
    "Callback": "rl_training.runtime.callbacks",
    "train_run": "rl_training.runtime.manager",
    "resume_run": "rl_training.runtime.manager",
    "list_runs": "rl_training.runtime.manager",
    "evaluate_checkpoint": "rl_training.runtime.workflows",
    "AlgorithmRow": "rl_training.experiment.registry",
    "register": "rl_training.api.algorithms",
    "compare_runs": "rl_training.tools.compare",
    "write_report": "rl_training.tools.report",
    "tune": "rl_training.tools.tune",
    "make_config": "rl_training.api.functions",
    "train": "rl_training.api.functions",
    "evaluate": "rl_training.api.functions",
}


def _managed_names() -> tuple[str, ...]:
    from rl_training.experiment.registry import REGISTRY, load_plugins

    load_plugins()
    return tuple(row.class_name for row in REGISTRY.values())


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _managed_names():
        return importlib.import_module("rl_training.api.algorithms").managed(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, *_managed_names()])
