"""`python -m benchmarks.chaos`: the table goes to a marked section of `docs/reliability.md`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import sys
import tempfile
from datetime import date
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # no thread runs where a child is forked

import torch

from benchmarks.chaos.damage import Verdict, damages, forgeries
from benchmarks.chaos.kills import ROOT, Outcome, ordeal, run_dir_of, victims
from benchmarks.compare_sb3 import write_section

PAGE = ROOT / "docs" / "reliability.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6, help="of each run (default: 6)")
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose name has this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-page", action="store_true", help=f"print only, leave {PAGE.relative_to(ROOT)} alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_STATE_HOME"] = directory
        outcomes = []
        for victim in victims(Path(directory)):
            if args.only in victim.name:
                outcomes.append(ordeal(victim, kills=args.kills, rng=rng))
                print(_line(outcomes[-1]), flush=True)
        if not outcomes:
            parser.error(f"no run is named like {args.only!r}")
        run_dir = run_dir_of(outcomes[0].victim)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            checkpoint = (run_dir / "checkpoints" / "latest").resolve()
            verdicts = [damages(checkpoint, rng), forgeries(run_dir)]
    print(text := report(outcomes, verdicts))
    if not args.no_page and not args.only:
        write_section(PAGE, "chaos", text)
    return 1 if any(outcome.differing for outcome in outcomes) or any(verdict.wrong for verdict in verdicts) else 0


def report(outcomes: list[Outcome], verdicts: list[Verdict]) -> str:
    equal = sum(not outcome.differing for outcome in outcomes)
    kills, within = sum(o.kills for o in outcomes), sum(o.within_checkpoints for o in outcomes)
    lines = [
        f"{date.today()}: {equal} of {len(outcomes)} runs ended bit for bit equal after {kills} kills with -9, {within}"
        " of them in the middle of a checkpoint.",
        "",
        "| run | kills | within a checkpoint | checkpoint and metrics |",
        "|---|---|---|---|",
        *map(_line, outcomes),
        "",
        "| files | tried | loaded, ran something, or ended in a traceback |",
        "|---|---|---|",
        *(f"| {what} | {tried} | {'; '.join(wrong) or 'none'} |" for what, tried, wrong in verdicts),
        "",
        "Again: `make chaos`",
    ]
    return "\n".join(lines)


def _line(outcome: Outcome) -> str:
    said = f"DIFFERENT: {', '.join(outcome.differing[:3])}" if outcome.differing else "equal"
    return f"| {outcome.victim.name} | {outcome.kills} | {outcome.within_checkpoints} | {said} |"


if __name__ == "__main__":
    sys.exit(main())
