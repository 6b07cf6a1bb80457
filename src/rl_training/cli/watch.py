"""`watch`: episodes in a window."""

from __future__ import annotations

import argparse
from contextlib import closing

from rl_training.cli.flags import add_playing, add_run, add_trust, playing_options, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.opening import load_session
from rl_training.tools.watch import watch_episodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    add_playing(parser)


def run(args: argparse.Namespace) -> Answer:
    with closing(load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)) as session:
        returns = watch_episodes(session, **playing_options(args))
    told = ", ".join(f"{paid:.1f}" for paid in returns)
    return Answer(f"returns: {told}", {"returns": returns})
