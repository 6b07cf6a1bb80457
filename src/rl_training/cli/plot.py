"""`plot`: learning curves, with the controls beneath."""

from __future__ import annotations

import argparse

from rl_training.cli.main import Answer
from rl_training.tools.plot import plot_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or one above: all runs below it")
    parser.add_argument("--output", required=True, metavar="FILE", help="curve.png, curve.svg or curve.pdf")
    parser.add_argument("--metric", default="return_mean", metavar="X", help="a column of metrics.jsonl [return_mean]")
    parser.add_argument(
        "--controls", default="auto", metavar="X", help="panels: those that moved (auto), none, or name,name [auto]"
    )
    parser.add_argument("--title", metavar="X", help="default: the algorithm and the environment")


def run(args: argparse.Namespace) -> Answer:
    plotted = plot_runs(args.runs, args.output, metric=args.metric, controls=args.controls, title=args.title)
    skipped = [f"left out, no rows yet: {path}" for path in plotted.without_rows]
    text = "\n".join([f"{args.output}: {plotted.points} points of {len(plotted.runs)} runs", *skipped])
    data = {"output": args.output, "runs": [str(path) for path in plotted.runs], "points": plotted.points}
    return Answer(text, data | {"without_rows": [str(path) for path in plotted.without_rows]})
