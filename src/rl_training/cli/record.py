"""`record`: a video of episodes."""

from __future__ import annotations

import argparse
import os
from contextlib import closing

from rl_training.cli.flags import add_playing, add_run, add_trust, playing_options, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.runtime.opening import load_session
from rl_training.tools.record import record_episodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="play.mp4 or play.gif")
    add_playing(parser)


def run(args: argparse.Namespace) -> Answer:
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # nothing is shown, so pygame need not look for a display
    with closing(load_session(args.run, which=which_checkpoint(args), env=args.env, trust=args.trust)) as session:
        recording = record_episodes(session, args.output, **playing_options(args))
    scores = recording.summary()
    text = (
        f"{args.output}: {scores['frames']} frames, {scores['episodes']} episodes, return {scores['return_mean']:.1f}"
    )
    return Answer(text, scores)
