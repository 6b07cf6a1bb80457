"""`resume`: the rest of a run, or more than was planned."""

from __future__ import annotations

import argparse
import sys

from rl_training.cli.flags import add_config_flags, add_run, add_trust, config_flags, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.evaluation import score_text
from rl_training.runtime.manager import resume_run

ELSEWHERE = (
    *("backend", "collect_ahead", "workers", "worker_backend", "ray_mode", "ray_address", "step_timeout_s", "kernels"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "a run directory")
    parser.add_argument("--total-timesteps", type=int, metavar="N", help="a new budget, counted from the run's start")
    parser.add_argument("--stretch-schedules", action="store_true", help="schedules end with the new budget")
    add_trust(parser)
    add_config_flags(parser, names=ELSEWHERE)
    parser.add_argument("--display", choices=("auto", "live", "plain", "none"), default="auto")


def run(args: argparse.Namespace) -> Answer:
    if args.total_timesteps is not None and not args.stretch_schedules:
        print("schedules keep their old horizon; --stretch-schedules extends them", file=sys.stderr)
    result = resume_run(
        args.run,
        which=which_checkpoint(args),
        total_timesteps=args.total_timesteps,
        stretch_schedules=args.stretch_schedules,
        display=args.display,
        env=args.env,
        trust=args.trust,
        **config_flags(args, ELSEWHERE),
    )
    text = f"{result.global_step:,} steps: {score_text(result.summary())}\nrun: {result.run_dir}"
    return Answer(text, result.summary())
