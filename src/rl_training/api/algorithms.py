"""Managed agents: one class for each row of the registry. `algorithms.pyi` declares them for editors and type checkers.

agent = PPO("CartPole-v1", ent_coef_schedule={"kind": "linear", "start": 0.01, "end": 0.0})
agent.train(100_000)
agent.evaluate(episodes=20)
"""

from __future__ import annotations

from rl_training.api.agent import Agent
from rl_training.api.parameters import described
from rl_training.experiment import registry
from rl_training.experiment.registry import REGISTRY, AlgorithmRow


class ManagedType(type):
    """The type of managed classes, which describes their parameters when somebody asks."""

    @property
    def __doc__(cls) -> str:  # type: ignore[override]
        return described(REGISTRY[cls.algo])  # type: ignore[attr-defined]


def _managed_class(row: AlgorithmRow) -> type[Agent]:
    return ManagedType(row.class_name, (Agent,), {"algo": row.name, "__module__": __name__})


MANAGED: dict[str, type[Agent]] = {row.class_name: _managed_class(row) for row in REGISTRY.values()}
globals().update(MANAGED)


def register(row: AlgorithmRow) -> type[Agent]:
    """Adds an algorithm from outside of the package and returns its managed class."""
    registry.register(row)
    return managed(row.class_name)


def managed(class_name: str) -> type[Agent]:
    """The managed class of that name, also of an algorithm that was registered later or that a plugin brings."""
    if class_name not in MANAGED:
        registry.load_plugins()
        MANAGED[class_name] = next(_managed_class(row) for row in REGISTRY.values() if row.class_name == class_name)
    return MANAGED[class_name]
