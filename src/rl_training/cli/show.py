"""`show`: a preset or a run, resolved."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from rl_training.cli.main import Answer
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset
from rl_training.runtime.manager import run_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="PRESET|RUN", help="a preset, a YAML file or a run directory")


def run(args: argparse.Namespace) -> Answer:
    config = run_config(args.what) if Path(args.what).is_dir() else make_config(load_preset(args.what))
    resolved = config.resolved()
    return Answer(yaml.safe_dump(resolved, sort_keys=False).rstrip(), resolved)
