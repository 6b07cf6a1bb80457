"""Flags shared by verbs; those of `TrainConfig` are derived from it, never written twice."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, layer_of, with_numbers
from rl_training.experiment.plain import parse_yaml
from rl_training.experiment.runs import find_run

RUNS = TrainConfig.model_fields["output_dir"].default
SPELLINGS = {"env_id": ("--env", "--env-id"), "init_checkpoint": ("--checkpoint", "--init-checkpoint")}
NOT_FLAGS = {"algo", "algo_kwargs"}  # the positional argument, and `--set`


def add_config_flags(parser: argparse.ArgumentParser, names: Collection[str] = TrainConfig.model_fields) -> None:
    group = parser.add_argument_group("configuration")
    for name, field in TrainConfig.model_fields.items():
        if name in names and name not in NOT_FLAGS:
            flags = SPELLINGS.get(name, ("--" + name.replace("_", "-"),))
            default = "" if field.is_required() or field.default in (None, {}, []) else f" [{field.default}]"
            switch: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
            group.add_argument(*flags, dest=name, metavar="X", help=f"{field.description}{default}", **switch)


def config_flags(args: argparse.Namespace, names: Collection[str] = TrainConfig.model_fields) -> dict[str, Any]:
    """The flags that were given, read as YAML: numbers, lists and mappings are what they look like."""
    given = {name: getattr(args, name, None) for name in names if name not in NOT_FLAGS}
    return {name: parse_value(name, text) for name, text in given.items() if text is not None}


def parse_value(key: str, text: str) -> Any:
    value = with_numbers(parse_yaml(text, f"{key}: cannot read {text[:80]!r} as a value"))
    if key in ("callbacks", "loggers", "tasks", "tracker_artifacts", "wrappers") and isinstance(value, str):
        return value.split(",")
    return value


def assignments(pairs: list[str]) -> dict[str, Any]:
    """`--set key=value`, with keys as `layer_of` takes them."""
    values = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value, got {pair!r}")
        values.append((key, parse_value(key, text)))
    return layer_of(values)


def parameter_flags(args: argparse.Namespace) -> list[str]:
    """`--learning-rate=1e-4` as `learning_rate=1e-4`."""
    pairs = []
    for argument in args.parameters:
        flag, equals, text = argument.partition("=")
        if not flag.startswith("--"):
            raise ConfigError(f"{flag!r} is neither a flag nor the value of one")
        if not equals:
            raise ConfigError(f"{flag} needs a value")
        pairs.append(f"{flag[2:].replace('-', '_')}={text}")
    return pairs


def run_path(text: str) -> str:
    """A run as users name it."""
    return str(find_run(text, Path(RUNS)))


def add_run(parser: argparse.ArgumentParser, what: str = "a run directory or a checkpoint") -> None:
    parser.add_argument("run", metavar="RUN", type=run_path, help=f"{what}, latest, or a part of its name in {RUNS}")
    parser.add_argument("--checkpoint", default="latest", metavar="X", help="latest, best or a step [latest]")


def add_trust(parser: argparse.ArgumentParser, *, needs_env: bool = True) -> None:
    """For verbs that open a run: what it names and the user did not make is imported only if one of these says so."""
    if needs_env:
        parser.add_argument("--env", metavar="X", help="environment to use in place of the stored one")
    parser.add_argument("--trust", action="store_true", help="import what the run names, though a stranger made it")


def add_playing(parser: argparse.ArgumentParser) -> None:
    """For verbs that show episodes."""
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="how many [1]")
    parser.add_argument("--fps", type=float, metavar="N", help="frames per second; default: the environment's own")
    parser.add_argument("--seed", type=int, metavar="N", help="of the episodes; default: the run's own")
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the best")
    parser.add_argument("--max-steps", type=int, metavar="N", help="cut longer episodes")


def playing_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_playing` was given under the names that the tools for episodes take."""
    chosen = {name: getattr(args, name) for name in ("episodes", "fps", "seed", "max_steps")}
    return chosen | {"deterministic": not args.stochastic}


def which_checkpoint(args: argparse.Namespace) -> str | int:
    return int(args.checkpoint) if args.checkpoint.isdigit() else args.checkpoint
