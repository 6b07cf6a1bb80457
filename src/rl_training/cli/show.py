"""`show`: a preset or a run, resolved, or an algorithm with all that it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from rl_training.api.parameters import algorithm_parameters
from rl_training.cli.flags import run_path
from rl_training.cli.main import Answer
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, make_config
from rl_training.experiment.presets import list_presets, load_preset
from rl_training.experiment.registry import REGISTRY, AlgorithmRow
from rl_training.runtime.manager import run_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="ALGO|PRESET|RUN", help="an algorithm, a preset, a YAML file or a run")


def run(args: argparse.Namespace) -> Answer:
    if args.what in REGISTRY:
        return _algorithm(REGISTRY[args.what])
    resolved = _config(args.what).resolved()
    return Answer(yaml.safe_dump(resolved, sort_keys=False).rstrip(), resolved)


def _config(what: str) -> TrainConfig:
    if what in list_presets() or what.endswith((".yaml", ".yml")):
        return make_config(load_preset(what))
    path = Path(run_path(what))
    if path.is_dir():
        return run_config(path)
    if "/" not in what:
        names = ", ".join(REGISTRY)
        raise ConfigError(f"{what!r} is no algorithm ({names}), and no run under {Path.cwd() / 'runs'} is named so")
    return make_config(load_preset(what))


def _algorithm(row: AlgorithmRow) -> Answer:
    """Every parameter with its type, bounds, default, whether a schedule may move it, and what it does."""
    parameters = algorithm_parameters(row)
    lines = [f"{row.title} ({row.paper}, {row.year})", row.scope, ""]
    for p in parameters:
        schedule = ", schedulable" if p.schedulable else ""
        bounds = f", {p.bounds}" if p.bounds else ""
        lines += [f"{p.name}: {p.type}{bounds} [{p.default!r}]{schedule}", f"    {p.description}"]
    return Answer("\n".join(lines), {"name": row.name, "parameters": [p._asdict() for p in parameters]})
