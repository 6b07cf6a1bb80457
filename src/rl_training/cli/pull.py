"""`pull`: a run from the Hugging Face Hub."""

from __future__ import annotations

import argparse

from rl_training.cli.main import Answer
from rl_training.cli.push import add_hub, shared_answer
from rl_training.tools.hub import pull_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", metavar="OWNER/NAME", help="a model repository that `push` has filled")
    parser.add_argument("--output", required=True, metavar="DIR", help="a new directory for the run")
    add_hub(parser)


def run(args: argparse.Namespace) -> Answer:
    return shared_answer(pull_run(args.repo, args.output, revision=args.revision, endpoint=args.endpoint))
