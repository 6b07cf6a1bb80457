"""`train`: a new run, or one for each seed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

import yaml

from rl_training.cli.flags import add_config_flags, assignments, config_flags, score_text
from rl_training.cli.main import Answer
from rl_training.envs.factory import make_envs
from rl_training.errors import ConfigError, EnvironmentFault, MissingExtraError
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.manager import train_run
from rl_training.runtime.memory import free_bytes, memory_needs, readable, told
from rl_training.runtime.workflows import TrainResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algo", nargs="?", help="algorithm; a preset names its own")
    parser.add_argument("--config", metavar="X", help="a packaged preset (ppo/cartpole) or a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key, as often as needed")
    parser.add_argument("--seeds", metavar="0-4", help="train one run per seed (0-4 or 0,3,7), on Ray in parallel")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and the memory it needs")
    parser.add_argument("--display", choices=("auto", "live", "plain", "none"), default="auto")
    add_config_flags(parser)


def run(args: argparse.Namespace) -> Answer:
    config = config_from(args)
    if args.dry_run:
        return _dry_run(config)
    if args.seeds is None:
        result = train_run(config, display=args.display)
        return Answer(_text(result), result.summary())
    configs = [make_config({**config.model_dump(), "seed": seed}) for seed in parse_seeds(args.seeds)]
    results = []
    for result in _train_all(configs, args):
        results.append(result)
        print(_text(results[-1]), file=sys.stderr)
    return Answer("\n".join(map(_text, results)), {"runs": [result.summary() for result in results]})


def _dry_run(config: TrainConfig) -> Answer:
    """The resolved config, and as a comment below it the memory that the run would need."""
    resolved = config.resolved()
    try:
        with closing(make_envs(config.env_spec(), max(len(config.tasks), 1))) as envs:
            needs = memory_needs(config, envs.spaces)
    except (EnvironmentFault, MissingExtraError) as error:
        note, data = f"unknown ({error})", None
    else:
        free = free_bytes()
        note = told(needs) + ("" if free is None else f"; {readable(free)} are free")
        data = {need.part: need.bytes for need in needs}
    text = yaml.safe_dump(resolved, sort_keys=False) + f"# memory: {' '.join(note.split())}"
    return Answer(text, resolved | {"memory_bytes": data})


def _train_all(configs: list[TrainConfig], args: argparse.Namespace) -> Iterator[TrainResult]:
    """Trains on Ray side by side, otherwise one after the other."""
    if configs[0].backend == "ray":
        from rl_training.distributed.runs import train_in_parallel

        yield from train_in_parallel(configs)
    else:
        yield from (train_run(config, display=args.display) for config in configs)


def config_from(args: argparse.Namespace) -> TrainConfig:
    """Defaults < preset or file < flags."""
    preset = load_preset(args.config) if args.config else {}
    named = {"algo": args.algo} if args.algo else {}
    if args.algo and preset.get("algo", args.algo) != args.algo:
        raise ConfigError(f"--config {args.config} is for {preset['algo']!r}, the command says {args.algo!r}")
    layers = merge(preset, named, config_flags(args), assignments(args.set))
    if "algo" not in layers:
        raise ConfigError("say what to train: an algorithm (rl-training train ppo --env …) or --config")
    return make_config(layers)


def parse_seeds(text: str) -> list[int]:
    try:
        first, dash, last = text.partition("-")
        return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds takes 0-4 or 0,3,7, got {text!r}") from error


def _text(result: TrainResult) -> str:
    stopped = f" ({result.stop_reason})" if result.stop_reason else ""
    return f"{result.global_step:,} steps{stopped}: {score_text(result.summary())}\nrun: {result.run_dir}"
