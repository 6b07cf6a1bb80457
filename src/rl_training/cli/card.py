"""`card`: a model card of a run, in Markdown."""

from __future__ import annotations

import argparse

from rl_training.cli.flags import add_run, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.tools.card import write_card


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "a run directory")
    parser.add_argument("--output", metavar="FILE", help="README.md, or a folder for it; default: the run's own")
    parser.add_argument("--repo", metavar="OWNER/NAME", help="where it can be pulled from, for the text")


def run(args: argparse.Namespace) -> Answer:
    path = write_card(args.run, args.output or args.run, which=which_checkpoint(args), repo=args.repo)
    return Answer(f"{path}", {"output": str(path)})
