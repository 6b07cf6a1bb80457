"""`compare`: groups of runs side by side, with intervals."""

from __future__ import annotations

import argparse
from typing import Any

from rl_training.cli.main import Answer
from rl_training.cli.tables import Lines, table
from rl_training.tools.compare import ALL_ENVIRONMENTS, METRIC, Comparison, compare_runs, score_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_comparison(parser)


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that compares runs."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or one above: all runs below it")
    parser.add_argument("--by", metavar="X", help="group by algo, preset or any key [configuration]")
    parser.add_argument("--target", type=float, metavar="X", help="also tell when each group reaches this score")
    parser.add_argument("--metric", default=METRIC, metavar="X", help=f"a column of metrics.jsonl [{METRIC}]")


def run(args: argparse.Namespace) -> Answer:
    found = compare_runs(args.runs, by=args.by, target=args.target, metric=args.metric)
    return Answer(comparison_text(found), found.to_dict())


def comparison_text(found: Comparison) -> str:
    """A table for each environment, one of improvements, and what the reader should know."""
    envs = dict.fromkeys(group.env for group in found.groups)
    parts = [table(_title(env, found), score_rows(found, env)) for env in envs]
    if found.improvements:
        parts.append(table("probability of improvement (a run of the first beats one of the second)", _wins(found)))
    parts += ["\n".join(f"note: {note}" for note in found.notes)] * bool(found.notes)
    return "\n\n".join(parts)


def _title(env: str, found: Comparison) -> str:
    scale = "0: worst run, 1: best run of each environment" if env == ALL_ENVIRONMENTS else f"last {found.metric}"
    return f"{env} ({scale})"


def _wins(found: Comparison) -> Lines:
    rows: Lines = []
    for each in found.improvements:
        interval: Any = each.interval
        text = "-" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"
        rows.append({"first": each.group, "second": each.over, "P": f"{each.probability:.2f}", "95%": text})
    return rows
