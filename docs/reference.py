"""Writes the reference: curves and parameters of the algorithms, and the Python API, from docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rl_training
from rl_training import ops
from rl_training.api.agent import Agent
from rl_training.api.history import History
from rl_training.api.parameters import Parameter, algorithm_parameters, config_parameters
from rl_training.experiment.presets import preset_scores
from rl_training.experiment.registry import REGISTRY, AlgorithmRow
from rl_training.runtime.evaluation import Evaluation

DOCS = Path(__file__).parent
ALGORITHMS = DOCS / "algorithms"


def curves(row: AlgorithmRow) -> str:
    """The curves of the algorithm's presets that were measured, with what they reached."""
    scores = preset_scores()
    found = [name for name in scores if name.startswith(f"{row.name}/") and _picture(name).is_file()]
    if not found:
        return "## Curves\n\nNone has been drawn yet for a preset of this algorithm."
    lines = ["## Curves"]
    for name in found:
        s = scores[name]
        reached = (
            f"mean {s['return_mean']:,.1f}, worst seed {s['worst_seed']:,.1f}, {s['cpu_seconds']:,} CPU seconds a seed"
        )
        lines += ["", f"![{name}](../{_picture(name).relative_to(DOCS)})", ""]
        lines += [f"`{name}`, {s['seeds']} seeds, {s['steps']:,} steps: {reached}."]
    return "\n".join(lines)


def on_cartpole() -> str:
    """What the presets for CartPole need, the quickest first."""
    found = {name: s for name, s in preset_scores().items() if name.endswith("/cartpole")}
    lines = ["| preset | steps | CPU seconds a seed | mean | worst seed |", "|---|---|---|---|---|"]
    for name, s in sorted(found.items(), key=lambda item: item[1]["cpu_seconds"]):
        lines.append(
            f"| `{name}` | {s['steps']:,} | {s['cpu_seconds']} | {s['return_mean']:.0f} | {s['worst_seed']:.0f} |"
        )
    return "\n".join(lines)


def _picture(preset: str) -> Path:
    return DOCS / "images" / "curves" / f"{preset.replace('/', '_')}.svg"


def parameters(row: AlgorithmRow) -> str:
    """What `rl-training show <name>` prints, as a table."""
    intro = f"As `rl-training show {row.name}` prints them; [every run](../api.md#keys-of-every-run) has further keys."
    return "\n".join(["## Parameters", "", intro, "", *_table(algorithm_parameters(row))])


def _table(found: list[Parameter]) -> list[str]:
    lines = ["| parameter | default | what it does |", "|---|---|---|"]
    for p in found:
        kind = ", ".join(part for part in (p.type.replace(" | ", " or "), p.bounds) if part)
        moves = "; may follow a [schedule](../schedules.md)" if p.schedulable else ""
        lines.append(f"| `{p.name}` | `{p.default!r}` | {p.description} ({kind}){moves} |")
    return lines


def api_page() -> str:
    """`docs/api.md`: what `from rl_training import …` offers."""
    lines = ["# Python API", "", "Made from docstrings by `python docs/build.py`. What `rl_training` offers is below."]
    lines += ["", "## Agents", "", "One class for each algorithm. All of them have the methods of `Agent`.", ""]
    lines += ["| class | algorithm | its parameters |", "|---|---|---|"]
    lines += [
        f"| `{r.class_name}` | {r.title} | [page](algorithms/{r.name}.md#parameters) |" for r in REGISTRY.values()
    ]
    lines += ["", *_class("Agent", Agent)]
    lines += ["", *_class("History", History)]
    lines += ["", "## Functions", ""]
    public = {name: getattr(rl_training, name) for name in sorted(rl_training._LAZY)}
    for name, thing in public.items():
        if inspect.isfunction(thing):
            lines += [*_function(f"rl_training.{name}", thing, level=3), ""]
    lines += ["## Other classes", ""]
    for name in ("Callback", "TrainResult", "AlgorithmRow"):
        lines += [*_class(name, public[name]), ""]
    lines += [*_class("Evaluation", Evaluation), "", "## Keys of every run", ""]
    lines += [
        "`TrainConfig` has them; every agent, `rl_training.train` and the flags of `rl-training train` take them.",
        "",
    ]
    return "\n".join([*lines, *_table(config_parameters())]) + "\n"


def ops_page() -> str:
    """`docs/api_ops.md`: the pure functions, by module."""
    lines = [
        "# Functions of ops",
        "",
        "The maths, as pure functions of tensors. Made from docstrings by `python docs/build.py`.",
    ]
    for info in pkgutil.iter_modules(ops.__path__):
        module = importlib.import_module(f"rl_training.ops.{info.name}")
        lines += ["", f"## rl_training.ops.{info.name}", "", inspect.getdoc(module) or ""]
        for name, thing in _own(module, lambda t: inspect.isfunction(inspect.unwrap(t)) if callable(t) else False):
            lines += ["", *_function(name, thing, level=3)]
    return "\n".join(lines) + "\n"


def _own(module: Any, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """The public things that a module itself defines, in its own order."""
    for name, thing in vars(module).items():
        if not name.startswith("_") and wanted(thing) and getattr(thing, "__module__", "") == module.__name__:
            yield name, thing


def _function(name: str, thing: Any, *, level: int) -> list[str]:
    short = name.rpartition(".")[2]
    return [f"{'#' * level} {name}", "", "```text", _signature(short, thing), "```", "", inspect.getdoc(thing) or ""]


def _signature(name: str, thing: Any) -> str:
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{inspect.signature(thing)}")
    text = re.sub(r"<built-in method (\w+) [^>]*>", r"\1", text)  # its address differs from run to run
    return text if len(text) <= 88 else text.replace("(", "(\n    ", 1).replace(", *, ", ",\n    *,\n    ")


def _class(name: str, thing: type) -> list[str]:
    lines = [f"### {name}", "", inspect.getdoc(thing) or ""]
    for method, function in vars(thing).items():
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and not (method.startswith("_") and method != "__init__"):
            lines += ["", *_function(name if method == "__init__" else f"{name}.{method}", function, level=4)]
        elif isinstance(function, property) and not method.startswith("_"):
            lines += ["", f"#### {name}.{method}", "", inspect.getdoc(function) or ""]
    return lines


def sections() -> Iterator[tuple[Path, str, str]]:
    """Parts of pages that people write otherwise: (page, name, text)."""
    yield DOCS / "which_algorithm.md", "cartpole", on_cartpole()
    for row in REGISTRY.values():
        yield ALGORITHMS / f"{row.name}.md", "curves", curves(row)
        yield ALGORITHMS / f"{row.name}.md", "parameters", parameters(row)


PAGES = {DOCS / "api.md": api_page, DOCS / "api_ops.md": ops_page}
