"""`push`: a run's checkpoint on the Hugging Face Hub."""

from __future__ import annotations

import argparse

from rl_training.cli.flags import add_run, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.tools.hub import Shared, push_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "a run directory")
    parser.add_argument("repo", metavar="OWNER/NAME", help="a model repository, made if it is not there")
    parser.add_argument("--private", action="store_true", help="if it is made, let only its owner see it")
    add_hub(parser)


def add_hub(parser: argparse.ArgumentParser) -> None:
    """For verbs that speak with the hub."""
    parser.add_argument("--revision", metavar="X", help="branch, tag or commit [main]")
    parser.add_argument("--endpoint", metavar="URL", help="of another hub [HF_ENDPOINT, or huggingface.co]")


def run(args: argparse.Namespace) -> Answer:
    shared = push_run(
        args.run,
        args.repo,
        which=which_checkpoint(args),
        private=args.private,
        revision=args.revision,
        endpoint=args.endpoint,
    )
    return shared_answer(shared)


def shared_answer(shared: Shared) -> Answer:
    data = {"repo": shared.repo, "path": str(shared.path), "files": list(shared.files), "url": shared.url}
    return Answer(f"{shared.url}: {len(shared.files)} files; here: {shared.path}", data)
