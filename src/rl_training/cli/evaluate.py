"""`evaluate`: whole episodes, greedy unless said otherwise."""

from __future__ import annotations

import argparse

from rl_training.cli.flags import add_config_flags, add_run, add_trust, config_flags, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.evaluation import score_text
from rl_training.runtime.workflows import evaluate_checkpoint

ELSEWHERE = ("eval_env_kwargs",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="how many [20]")
    parser.add_argument("--seed", type=int, metavar="N", help="of the episodes; default: the run's own")
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the best")
    add_config_flags(parser, names=ELSEWHERE)


def run(args: argparse.Namespace) -> Answer:
    evaluation = evaluate_checkpoint(
        args.run,
        episodes=args.episodes,
        which=which_checkpoint(args),
        deterministic=not args.stochastic,
        seed=args.seed,
        env=args.env,
        trust=args.trust,
        **config_flags(args, ELSEWHERE),
    )
    scores = evaluation.summary()
    text = f"{score_text(scores)}, best {scores['return_max']:.1f}, median {scores['return_median']:.1f}"
    return Answer(f"{text}, length {scores['length_mean']:.1f}", scores)
