"""`play`: a game against a run's policy, in the terminal."""

from __future__ import annotations

import argparse
from contextlib import closing

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.opening import load_session
from rl_training.tools.play import play_game

OUTCOMES = {1.0: "you win", 0.0: "a draw", -1.0: "you lose", None: "left"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument("--second", action="store_true", help="let the policy move first")
    parser.add_argument("--seed", type=int, metavar="N", help="of the game; default: the run's own")


def run(args: argparse.Namespace) -> Answer:
    with closing(load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)) as session:
        won = play_game(session, side=int(args.second), ask=input, show=print, seed=args.seed)
    return Answer(OUTCOMES.get(won, f"you win {won}"), {"won": won})
