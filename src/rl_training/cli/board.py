"""`board`: a local page that follows runs while they train."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rl_training.cli.flags import RUNS
from rl_training.cli.main import Answer
from rl_training.errors import ConfigError
from rl_training.tools.board import HOST, Board, serving_board


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="?", default=RUNS, metavar="DIR", help=f"a directory with runs below it [{RUNS}]")
    parser.add_argument("--port", type=int, default=8100, metavar="N", help="0: any that is free [8100]")
    parser.add_argument("--interval", type=float, default=5.0, metavar="S", help="seconds between two looks [5]")


def run(args: argparse.Namespace) -> Answer:
    root = Path(args.runs)
    if not root.is_dir():
        raise ConfigError(f"{root} is no directory; give one with runs below it")
    if args.interval < 0.1:
        raise ConfigError(f"--interval must be at least 0.1, got {args.interval:g}")
    with serving_board(Board(root, interval_s=args.interval), args.port) as server:
        url = f"http://{HOST}:{server.server_address[1]}"
        print(f"the runs in {root} are shown at {url}; Ctrl-C ends it", file=sys.stderr, flush=True)
        server.serve_forever()
    return Answer(url, {"url": url})
