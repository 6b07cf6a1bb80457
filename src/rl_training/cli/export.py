"""`export`: a run's policy as a file that runs without this package."""

from __future__ import annotations

import argparse
from contextlib import closing

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.opening import load_session
from rl_training.tools.export import CHECKED_OBSERVATIONS, export_policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="policy.onnx, policy.pt2 or policy.safetensors")
    parser.add_argument("--stochastic", action="store_true", help="sample actions, with noise as one more input")
    parser.add_argument(
        "--observations",
        type=int,
        default=CHECKED_OBSERVATIONS,
        metavar="N",
        help=f"real observations that the file is compared on [{CHECKED_OBSERVATIONS}]",
    )


def run(args: argparse.Namespace) -> Answer:
    with closing(load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)) as session:
        exported = export_policy(
            session, args.output, deterministic=not args.stochastic, observations=args.observations
        )
    return Answer(str(exported), exported.summary())
