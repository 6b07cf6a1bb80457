"""`elo`: games between the checkpoints of a run, and how strong each is."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing

from rl_training.cli.flags import add_trust, run_path
from rl_training.cli.main import Answer
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import CheckpointStore
from rl_training.runtime.opening import load_session
from rl_training.tools.elo import Player, elo_ratings, tournament
from rl_training.tools.play import game_policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=run_path, help="a run directory, latest, or a part of its name")
    add_trust(parser)
    parser.add_argument("--games", type=int, default=20, metavar="N", help="of each pair, half with each side [20]")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the openings [0]")


def run(args: argparse.Namespace) -> Answer:
    steps = CheckpointStore(args.run).steps()
    if len(steps) < 2:
        raise ConfigError(f"{args.run}: ratings need two checkpoints or more; train with a higher keep_checkpoints")
    with ExitStack() as opened:
        sessions = [
            opened.enter_context(closing(load_session(args.run, which=step, env=args.env, trust=args.trust)))
            for step in steps
        ]
        players = [Player(f"step-{step}", game_policy(s)) for step, s in zip(steps, sessions, strict=True)]
        points = tournament(players, sessions[0], games=args.games, seed=args.seed)
    ratings = elo_ratings(points)
    played = args.games * (len(steps) - 1)
    rows = [
        {"checkpoint": player.name, "elo": round(float(elo), 1), "points": float(points[k].sum()), "games": played}
        for k, (player, elo) in enumerate(zip(players, ratings, strict=True))
    ]
    lines = [f"{row['checkpoint']:>16} {row['elo']:+8.1f}   {row['points']:g} of {played}" for row in rows]
    return Answer("\n".join(["      checkpoint      Elo   points", *lines]), {"ratings": rows})
