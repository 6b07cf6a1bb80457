"""`record-demos`: whole episodes of a run's policy as demonstrations."""

from __future__ import annotations

import argparse
from pathlib import Path

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.experiment.files import refuse_unwritable
from rl_training.runtime.opening import load_session
from rl_training.tools.demonstrations import record_demonstrations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="a .safetensors file")
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="how many [10]")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the episodes [0]")
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the best")


def run(args: argparse.Namespace) -> Answer:
    refuse_unwritable(args.output)
    session = load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)
    try:
        demos = record_demonstrations(
            session, episodes=args.episodes, seed=args.seed, deterministic=not args.stochastic
        )
    finally:
        session.close()
    demos.save(Path(args.output))
    returns = demos.episode_returns
    mean = sum(returns) / len(returns)
    text = f"{len(returns)} episodes, {len(demos):,} steps, return {mean:.1f}\ndemonstrations: {args.output}"
    return Answer(text, {"output": args.output, "episodes": len(returns), "steps": len(demos), "return_mean": mean})
