"""`plot`: learning curves, with the controls beneath."""

from __future__ import annotations

import argparse

from rl_training.cli.flags import run_path
from rl_training.cli.main import Answer
from rl_training.tools.experts import plot_experts
from rl_training.tools.plot import BANDS, Plotted, plot_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "a run as other verbs take it, or a directory above: all runs below it"
    parser.add_argument("runs", nargs="+", metavar="RUN", type=run_path, help=what)
    parser.add_argument("--output", required=True, metavar="FILE", help="curve.png, curve.svg or curve.pdf")
    shown = "learning curves, or which experts of ScaleZero work for which task [curves]"
    parser.add_argument("--what", choices=("curves", "experts"), default="curves", help=shown)
    parser.add_argument("--metric", default="return_mean", metavar="X", help="a column of metrics.jsonl [return_mean]")
    parser.add_argument(
        "--controls", default="auto", metavar="X", help="panels: those that moved (auto), none, or name,name [auto]"
    )
    parser.add_argument(
        "--band",
        choices=list(BANDS),
        default="ci",
        help="around the mean of seeds: 95%% interval, std or range [ci]",
    )
    parser.add_argument("--by", metavar="X", help="a line for each algo, preset or value of a key [configuration]")
    parser.add_argument("--title", metavar="X", help="default: the algorithm and the environment")


def run(args: argparse.Namespace) -> Answer:
    plotted = plot_experts(args.runs, args.output) if args.what == "experts" else _plotted_curves(args)
    metric = "expert_use" if args.what == "experts" else args.metric
    skipped = [f"left out, no rows yet: {path}" for path in plotted.without_rows]
    skipped += [f"left out, no numbers for {metric}: {path}" for path in plotted.without_metric]
    text = "\n".join([f"{args.output}: {plotted.points} points of {len(plotted.runs)} runs", *skipped])
    data = {"output": args.output, "runs": [str(path) for path in plotted.runs], "points": plotted.points}
    left_out = {"without_rows": plotted.without_rows, "without_metric": plotted.without_metric}
    return Answer(text, data | {name: [str(path) for path in paths] for name, paths in left_out.items()})


def _plotted_curves(args: argparse.Namespace) -> Plotted:
    return plot_runs(
        args.runs,
        args.output,
        metric=args.metric,
        controls=args.controls,
        title=args.title,
        band=args.band,
        by=args.by,
    )
