"""`serve`: a run's policy over HTTP."""

from __future__ import annotations

import argparse
import sys

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.tools.serve import LOOPBACK, listening, make_app, run_app, service_for
from rl_training.tools.serving import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser, needs_env=False)
    add_address(parser, port=8000)
    parser.add_argument("--max-body", type=int, default=Limits.body_bytes, metavar="BYTES", help="[%(default)s]")
    parser.add_argument("--max-batch", type=int, default=Limits.batch_rows, metavar="ROWS", help="[%(default)s]")
    parser.add_argument("--max-sessions", type=int, default=Limits.sessions, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--session-idle", type=float, default=Limits.session_idle_s, metavar="S", help="forget a session [%(default)s]"
    )


def add_address(parser: argparse.ArgumentParser, *, port: int) -> None:
    """For verbs that listen."""
    parser.add_argument("--host", default=LOOPBACK[0], metavar="X", help="address to listen at [127.0.0.1]")
    parser.add_argument("--port", type=int, default=port, metavar="N", help=f"0: any that is free [{port}]")


def run(args: argparse.Namespace) -> Answer:
    limits = Limits(args.max_body, args.max_sessions, args.session_idle, args.max_batch)
    app = make_app(
        service_for(args.run, which=which_checkpoint(args), trust=args.trust, limits=limits), hosts_for(args.host)
    )
    with listening(args.host, args.port) as bound:
        url = f"http://{args.host}:{bound.getsockname()[1]}"
        print(f"serving {args.run} at {url}; Ctrl-C ends it", file=sys.stderr, flush=True)
        run_app(app, bound)
    return Answer(f"served {args.run}", {"run": args.run, "url": url})


def hosts_for(host: str) -> tuple[str, ...]:
    """The names by which the server is asked: on this machine its own, elsewhere any."""
    return LOOPBACK if host in LOOPBACK else ("*",)
