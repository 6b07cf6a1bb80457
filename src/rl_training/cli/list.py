"""`list`: what there is."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rl_training.cli.main import Answer
from rl_training.experiment.registry import REGISTRY

Lines = list[dict[str, object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=list(_LISTS), help="default: algorithms and presets")
    parser.add_argument("--output-dir", default="runs", metavar="X", help="where runs are [runs]")


def run(args: argparse.Namespace) -> Answer:
    chosen = [args.what] if args.what else ["algorithms", "presets"]
    found = {name: _LISTS[name](args) for name in chosen}
    blocks = [f"{name}\n" + "\n".join(f"  {_line(row)}" for row in rows) for name, rows in found.items()]
    return Answer("\n\n".join(blocks), dict(found))


def _line(row: dict[str, object]) -> str:
    first, *rest = ("-" if value is None else str(value) for value in row.values())
    return "  ".join([f"{first:<24}", *rest]).rstrip()


def _algorithms(_args: argparse.Namespace) -> Lines:
    return [{"name": r.name, "title": r.title, "year": r.year, "paper": r.paper} for r in REGISTRY.values()]


def _presets(_args: argparse.Namespace) -> Lines:
    from rl_training.experiment.presets import list_presets

    return [{"name": name} for name in list_presets()]


def _environments(_args: argparse.Namespace) -> Lines:
    from rl_training.envs.suites import installed_ids

    return [{"name": env_id, "suite": suite} for suite, ids in installed_ids().items() for env_id in ids]


def _runs(args: argparse.Namespace) -> Lines:
    from rl_training.experiment.runs import list_runs

    return [
        {"run_dir": str(r.path), "global_step": r.step, "return_mean": r.return_mean, "finished": r.finished}
        for r in list_runs(args.output_dir)
    ]


_LISTS: dict[str, Callable[[argparse.Namespace], Lines]] = {
    "algorithms": _algorithms,
    "presets": _presets,
    "envs": _environments,
    "environments": _environments,
    "runs": _runs,
}
