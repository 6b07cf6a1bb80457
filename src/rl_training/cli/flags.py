"""Flags shared by verbs; those of `TrainConfig` are derived from it, never written twice."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

import yaml

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, with_numbers

SPELLINGS = {"env_id": ("--env", "--env-id")}
NOT_FLAGS = {"algo", "algo_kwargs"}  # the positional argument, and `--set`


def add_config_flags(parser: argparse.ArgumentParser, names: Collection[str] = TrainConfig.model_fields) -> None:
    group = parser.add_argument_group("configuration")
    for name, field in TrainConfig.model_fields.items():
        if name in names and name not in NOT_FLAGS:
            flags = SPELLINGS.get(name, ("--" + name.replace("_", "-"),))
            default = "" if field.is_required() or field.default in (None, {}, []) else f" [{field.default}]"
            group.add_argument(*flags, dest=name, metavar="X", help=f"{field.description}{default}")


def config_flags(args: argparse.Namespace, names: Collection[str] = TrainConfig.model_fields) -> dict[str, Any]:
    """The flags that were given, read as YAML: numbers, lists and mappings are what they look like."""
    given = {name: getattr(args, name, None) for name in names if name not in NOT_FLAGS}
    return {name: parse_value(name, text) for name, text in given.items() if text is not None}


def parse_value(key: str, text: str) -> Any:
    try:
        value = with_numbers(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{key}: cannot read {text!r} as a value: {' '.join(str(error).split())}") from error
    if key in ("loggers", "tasks", "wrappers") and isinstance(value, str):
        return value.split(",")
    return value


def assignments(pairs: list[str]) -> dict[str, Any]:
    """`--set key=value`: keys of the config, or else of the algorithm; `env_kwargs.key` reaches into a mapping."""
    layer: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value, got {pair!r}")
        head, dot, tail = key.partition(".")
        value = parse_value(key, text)
        if dot and head in TrainConfig.model_fields:
            layer.setdefault(head, {})[tail] = value
        elif key in TrainConfig.model_fields:
            layer[key] = value
        else:
            layer.setdefault("algo_kwargs", {})[key] = value
    return layer


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory or a checkpoint")
    parser.add_argument("--checkpoint", default="latest", metavar="X", help="latest, best or a step [latest]")


def which_checkpoint(args: argparse.Namespace) -> str | int:
    return int(args.checkpoint) if args.checkpoint.isdigit() else args.checkpoint


def score_text(scores: dict[str, Any]) -> str:
    if scores.get("return_mean") is None:
        return "not evaluated"
    spread = f" ± {scores['return_std']:.1f}" if scores.get("return_std") is not None else ""
    tasks = [f"{key.partition('/')[2]} {mean:.1f}" for key, mean in scores.items() if key.startswith("return_mean/")]
    return ", ".join(
        [
            f"return {scores['return_mean']:.1f}{spread}",
            *tasks,
            f"worst {scores['return_min']:.1f}",
            f"{scores['episodes']} episodes",
        ]
    )
