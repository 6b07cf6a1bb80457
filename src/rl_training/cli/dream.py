"""`dream`: what a world model expects against what happened."""

from __future__ import annotations

import argparse
from contextlib import closing

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.experiment.files import refuse_unwritable
from rl_training.runtime.opening import load_session
from rl_training.tools.dream import dream, write_dream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="dream.png, dream.svg, dream.pdf or, of images, dream.gif"
    )
    parser.add_argument("--context", type=int, default=5, metavar="N", help="observations that the model sees [5]")
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="length of the episode shown [50]")
    parser.add_argument("--seed", type=int, metavar="N", help="of the episode; default: the run's own")


def run(args: argparse.Namespace) -> Answer:
    refuse_unwritable(args.output)
    with closing(load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)) as session:
        dreamt = dream(session, context=args.context, steps=args.steps, seed=args.seed)
    write_dream(dreamt, args.output)
    scores = dreamt.summary()
    text = (
        f"{args.output}: {scores['steps']} steps, {scores['context']} of them seen; mean error of the others "
        f"{scores['observation_error']:.3g} (observation), {scores['reward_error']:.3g} (reward)"
    )
    return Answer(text, {"output": args.output} | scores)
