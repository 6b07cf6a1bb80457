"""`report`: one HTML page about runs, that needs no network."""

from __future__ import annotations

import argparse
import sys
import time

from rl_training.cli.compare import add_comparison
from rl_training.cli.main import Answer
from rl_training.errors import ConfigError
from rl_training.tools.report import Report, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_comparison(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="report.html")
    parser.add_argument("--watch", action="store_true", help="write it again and again until every run has finished")
    parser.add_argument("--interval", type=int, default=30, metavar="S", help="seconds between two writings [30]")


def run(args: argparse.Namespace) -> Answer:
    if args.interval < 1:
        raise ConfigError(f"--interval must be at least 1, got {args.interval}")
    report = _write(args)
    if args.watch:
        print(f"{report.output} is kept up to date; Ctrl-C ends it", file=sys.stderr)
    while args.watch and not report.finished:
        time.sleep(args.interval)
        report = _write(args)
    text = "\n".join([f"{report.output}: {len(report.runs)} runs", *(f"note: {note}" for note in report.notes)])
    data = {"output": str(report.output), "runs": [str(path) for path in report.runs], "notes": list(report.notes)}
    return Answer(text, data | {"finished": report.finished})


def _write(args: argparse.Namespace) -> Report:
    return write_report(
        args.runs,
        args.output,
        by=args.by,
        target=args.target,
        metric=args.metric,
        refresh_s=args.interval if args.watch else None,
    )
