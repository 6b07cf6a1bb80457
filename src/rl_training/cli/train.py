"""`train`: a new run, or one for each seed."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

import yaml

from rl_training.cli.flags import add_config_flags, assignments, config_flags, parameter_flags
from rl_training.cli.main import Answer
from rl_training.cli.seeds import aggregate, aggregate_text, parse_seeds, train_seeds
from rl_training.envs.factory import make_envs
from rl_training.errors import ConfigError, EnvironmentFault, MissingExtraError
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.presets import list_presets, load_preset
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.defaults import settled
from rl_training.runtime.evaluation import score_text
from rl_training.runtime.manager import train_run
from rl_training.runtime.memory import free_bytes, memory_needs, readable, told
from rl_training.runtime.workflows import TrainResult

EVALUATIONS = 10
OF_RAY = ("workers", "worker_backend", "ray_mode", "ray_address")  # what only workers on Ray read
takes_parameters = True  # any other flag is a parameter of the algorithm


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """The arguments by which `layers_from` knows what to train."""
    parser.add_argument("algo", nargs="?", metavar="ALGO|PRESET", help="an algorithm (ppo) or a preset (ppo/cartpole)")
    parser.add_argument("--config", metavar="X", help="a packaged preset (ppo/cartpole) or a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key, as often as needed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument("--seeds", metavar="0-4", help="train one run per seed (0-4 or 0,3,7); on Ray all at once")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many seeds at once, in processes [1]")
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
    if args.jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, got {args.jobs}")
    results = train_seeds(config, parse_seeds(args.seeds), jobs=args.jobs, display=args.display)
    together = aggregate(results)
    return Answer(aggregate_text(together), {"runs": [r.summary() for r in results], "aggregate": together})


def _dry_run(config: TrainConfig) -> Answer:
    """The resolved config, and as a comment below it the memory that the run would need."""
    try:
        with closing(make_envs(config.env_spec(), max(len(config.tasks), 1))) as envs:
            config = settled(config, envs.spaces)
            needs = memory_needs(config, envs.spaces)
    except (EnvironmentFault, MissingExtraError) as error:
        note, data = f"unknown ({error})", None
    else:
        free = free_bytes()
        note = told(needs) + ("" if free is None else f"; {readable(free)} are free")
        data = {need.part: need.bytes for need in needs}
    resolved = config.resolved()
    text = yaml.safe_dump(resolved, sort_keys=False) + f"# memory: {' '.join(note.split())}"
    return Answer(text, resolved | {"memory_bytes": data})


def config_from(args: argparse.Namespace) -> TrainConfig:
    config = make_config(layers_from(args))
    idle = [key for key in OF_RAY if getattr(config, key) != TrainConfig.model_fields[key].default]
    if idle and config.backend != "ray":
        raise ConfigError(f"{idle[0]} has no effect without workers on Ray; add --backend ray, or leave it out")
    return config


def layers_from(args: argparse.Namespace) -> dict[str, Any]:
    """The keys that were given: preset or file < flags."""
    algo, source = args.algo, args.config
    if algo and ("/" in algo or algo.endswith((".yaml", ".yml"))):  # a preset, or a file, is what everyone types
        if source:
            raise ConfigError(f"two configs were given: {algo} and --config {source}")
        algo, source = None, algo
    preset = load_preset(source) if source else {"defaults": "environment"}
    if algo and preset.get("algo", algo) != algo:
        raise ConfigError(f"--config {source} is for {preset['algo']!r}, the command says {algo!r}")
    named = {"algo": algo} if algo else {}
    layers = merge(preset, named, config_flags(args), assignments(args.set), assignments(parameter_flags(args)))
    if not source:  # a run that no preset describes is evaluated on the way as well, so that there is a best policy
        budget = layers.get("total_timesteps", TrainConfig.model_fields["total_timesteps"].default)
        layers.setdefault("eval_interval", max(budget // EVALUATIONS, 1) if isinstance(budget, int) else None)
    if "algo" not in layers:
        raise ConfigError("say what to train: a preset (rl-training train ppo/cartpole) or an algorithm and --env")
    if algo in REGISTRY and not layers.keys() & {"env_id", "tasks"}:
        raise ConfigError(f"train {algo} needs an environment: --env CartPole-v1{_presets_of(algo)}")
    return layers


def _presets_of(algo: str) -> str:
    names = [name for name in list_presets() if name.startswith(f"{algo}/")]
    return f"; or train one of the presets {', '.join(names)}" if names else ""


def _text(result: TrainResult) -> str:
    stopped = f" ({result.stop_reason})" if result.stop_reason else ""
    return f"{result.global_step:,} steps{stopped}: {score_text(result.summary())}\nrun: {result.run_dir}"
