"""Writes the declarations by which editors complete `PPO(` and type checkers know it."""

from __future__ import annotations

from pathlib import Path

import rl_training
from rl_training.api.parameters import SCHEDULE, algorithm_parameters, config_parameters
from rl_training.experiment.registry import REGISTRY, AlgorithmRow

PACKAGE = Path(rl_training.__file__).parent
LATER = """
MANAGED: dict[str, type[Agent]]
def register(row: AlgorithmRow) -> type[Agent]: ...
def managed(class_name: str) -> type[Agent]: ...
"""
HEAD = '"""Made by `python docs/build.py`; do not edit."""\n\n'


def algorithms_stub() -> str:
    """`api/algorithms.pyi`: every managed class with its parameters and their descriptions."""
    imports = "from collections.abc import Callable, Mapping\nfrom typing import Any, ClassVar, Literal, TypedDict\n\n"
    imports += "from typing_extensions import Unpack\n\n"
    imports += "from rl_training.api.agent import Agent\nfrom rl_training.envs.sources import EnvSource\n"
    imports += "from rl_training.experiment.registry import AlgorithmRow\n\n"
    common = ["class RunKeys(TypedDict, total=False):", *_keys(config_parameters()), ""]
    classes = [_class_stub(row) for row in REGISTRY.values()]
    return HEAD + imports + "\n".join([*common, *classes]) + LATER


def _keys(parameters: list) -> list[str]:
    lines = []
    for p in parameters:
        lines += [f"    {p.name}: {p.type}", f'    """{p.description}."""']
    return lines


def _class_stub(row: AlgorithmRow) -> str:
    lines = [f"class {row.class_name}(Agent):", f'    """{row.title} ({row.paper}, {row.year}).', "", "    Args:"]
    lines += ["        env: an id, module:factory, or something that makes or is an environment"]
    parameters = algorithm_parameters(row)
    lines += [f"        {p.name}: {p.description}" for p in parameters]
    lines += ['    """', "", "    algo: ClassVar[str]", "    def __init__(", "        self,"]
    lines += ["        env: EnvSource | None = None,", "        *,"]
    for p in parameters:
        lines.append(f"        {p.name}: {p.type} = {p.default!r},")
        if p.schedulable:
            lines.append(f"        {p.name}_schedule: {SCHEDULE} = ...,")
            lines.append(f"        {p.name}_warmup_steps: int = ...,")
    lines += ["        **run: Unpack[RunKeys],", "    ) -> None: ...", ""]
    return "\n".join(lines)


def package_stub() -> str:
    """`__init__.pyi`: what `from rl_training import …` offers."""
    by_module: dict[str, list[str]] = {}
    for name, module in rl_training._LAZY.items():
        by_module.setdefault(module, []).append(name)
    by_module["rl_training.api.algorithms"] = [row.class_name for row in REGISTRY.values()]
    lines = []
    for module in sorted(by_module):
        names = ", ".join(f"{name} as {name}" for name in sorted(by_module[module]))
        lines.append(f"from {module} import ({names})")
    return HEAD + "\n".join(lines) + "\n\n__version__: str\n_LAZY: dict[str, str]\n"


STUBS = {PACKAGE / "api" / "algorithms.pyi": algorithms_stub, PACKAGE / "__init__.pyi": package_stub}
