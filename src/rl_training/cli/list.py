"""`list`: what there is."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rl_training.cli.main import Answer
from rl_training.cli.tables import Lines, table
from rl_training.experiment.registry import REGISTRY, load_plugins

SORTS = ("path", "step", "return", "evaluated")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=list(_LISTS), help="default: algorithms and presets")
    parser.add_argument("--output-dir", default="runs", metavar="X", help="where runs are [runs]")
    parser.add_argument("--algo", metavar="X", help="runs of this algorithm only")
    parser.add_argument("--env", metavar="X", help="runs in this environment only")
    parser.add_argument("--sort", choices=SORTS, default="path", help="order of runs, the highest last [path]")


def run(args: argparse.Namespace) -> Answer:
    chosen = [args.what] if args.what else ["algorithms", "presets"]
    found = {name: _LISTS[name](args) for name in chosen}
    return Answer("\n\n".join(table(name, rows) for name, rows in found.items()), dict(found))


def _algorithms(_args: argparse.Namespace) -> Lines:
    load_plugins()
    return [{"name": r.name, "title": r.title, "year": r.year, "paper": r.paper} for r in REGISTRY.values()]


def _presets(_args: argparse.Namespace) -> Lines:
    """Presets with what they reached in the project's own measurements."""
    from rl_training.experiment.presets import list_presets, preset_scores

    scores = preset_scores()
    keys = ("return_mean", "worst_seed", "seeds", "steps", "cpu_seconds")
    return [{"name": name} | {key: scores.get(name, {}).get(key) for key in keys} for name in list_presets()]


def _environments(_args: argparse.Namespace) -> Lines:
    from rl_training.envs.suites import installed_ids

    return [{"name": env_id, "suite": suite} for suite, ids in installed_ids().items() for env_id in ids]


def _runs(args: argparse.Namespace) -> Lines:
    from rl_training.experiment.runs import list_runs

    wanted = [r for r in list_runs(args.output_dir) if args.algo in (None, r.algo) and args.env in (None, r.env_id)]
    rows: Lines = [
        {
            "run_dir": str(r.path),
            "global_step": r.step,
            "return_mean": r.return_mean,
            "evaluated": r.evaluated,
            "finished": r.finished,
        }
        for r in wanted
    ]
    column = {"path": "run_dir", "step": "global_step", "return": "return_mean", "evaluated": "evaluated"}[args.sort]
    return sorted(rows, key=lambda row: (row[column] is not None, row[column]))


_LISTS: dict[str, Callable[[argparse.Namespace], Lines]] = {
    "algorithms": _algorithms,
    "presets": _presets,
    "envs": _environments,
    "environments": _environments,
    "runs": _runs,
}
