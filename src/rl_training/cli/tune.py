"""`tune`: search for good hyper-parameters."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from rl_training.cli.flags import add_config_flags
from rl_training.cli.main import Answer
from rl_training.cli.seeds import parse_seeds
from rl_training.cli.train import add_recipe, layers_from
from rl_training.experiment.config import make_config, read_yaml
from rl_training.experiment.runs import file_name
from rl_training.tools.tune import Objective, tune

takes_parameters = True  # any other flag is a parameter of the algorithm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument("--space", metavar="FILE", help="a YAML file with the search space [the algorithm's own]")
    parser.add_argument("--trials", type=int, default=50, metavar="N", help="proposals in the study altogether [50]")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many runs at once, in processes [1]")
    parser.add_argument("--seeds", default="0", metavar="0-4", help="train every proposal with each of these seeds [0]")
    parser.add_argument(
        "--penalty", type=float, default=1.0, metavar="X", help="how much the deviation between seeds costs [1]"
    )
    parser.add_argument("--target", type=float, metavar="X", help="judge by the steps to this return instead")
    parser.add_argument("--pruning", choices=("median", "hyperband", "none"), default="median")
    parser.add_argument("--name", metavar="X", help="of the study in OUTPUT_DIR/tune [algorithm-environment]")
    add_config_flags(parser)


def run(args: argparse.Namespace) -> Answer:
    base = layers_from(args)
    config = make_config(base)
    name = args.name or f"{config.algo}-{config.env_id}"
    result = tune(
        base,
        Path(config.output_dir) / "tune" / file_name(name),
        space=read_yaml(Path(args.space)) if args.space else None,
        trials=args.trials,
        jobs=args.jobs,
        objective=Objective(tuple(parse_seeds(args.seeds)), args.penalty, args.target),
        pruning=args.pruning,
        say=partial(print, file=sys.stderr),
    )
    lines = [result.report.read_text(encoding="utf-8").rstrip(), "", f"report: {result.report}"]
    if result.preset is not None:
        lines.append(f"preset: {result.preset}; train it with: rl-training train --config {result.preset}")
    return Answer("\n".join(lines), result.to_dict())
