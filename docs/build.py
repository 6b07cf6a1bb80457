"""Writes what is derived: the README's table, the sourcebook, the reference and the declarations for editors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from rl_training.experiment.registry import REGISTRY, AlgorithmRow

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.compare_sb3 import write_section  # noqa: E402 - the repository's own, not installed
from docs.reference import PAGES, sections  # noqa: E402
from docs.stubs import STUBS  # noqa: E402


def readme_table() -> str:
    lines = ["| algorithm | name | paper | page |", "|---|---|---|---|"]
    for row in REGISTRY.values():
        page = f"[docs](docs/algorithms/{row.name}.md)"
        lines.append(f"| {row.title} | `{row.name}` | {row.paper} ({row.year}) | {page} |")
    return "\n".join(lines)


def sourcebook() -> str:
    listed = yaml.safe_load((ROOT / "docs" / "sourcebook.yaml").read_text())
    titles = {row.title for row in REGISTRY.values()} | {row.class_name for row in REGISTRY.values()}
    both = [entry["name"] for entry in listed if entry["name"] in titles]
    if both:
        raise SystemExit(f"docs/sourcebook.yaml lists what is implemented: {', '.join(both)}")
    entries = [(row.year, row.title, implemented(row)) for row in REGISTRY.values()]
    entries += [(entry["year"], entry["name"], outside(entry)) for entry in listed]
    head = ["# Sourcebook", "", "Methods by year, and what of them is here; made by `python docs/build.py`.", ""]
    head += ["| year | method | family | paper | here | scope, tests, score |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(line for *_, line in sorted(entries, key=lambda entry: entry[:2]))]) + "\n"


def implemented(row: AlgorithmRow) -> str:
    tests = sorted(path.name for path in (ROOT / "tests").glob(f"test_{row.name}_*.py"))
    scope = f"{row.scope}. Tests: conformance, {', '.join(tests)}. {scores(row.name)}"
    here = f"[`{row.name}`](algorithms/{row.name}.md)"
    return f"| {row.year} | {row.title} | {row.family} | {row.paper} | {here} | {scope} |"


def outside(entry: dict[str, Any]) -> str:
    """The line of a method that is no algorithm of its own here: an option of one, or not here at all."""
    algo = entry.get("option_of")
    here = f"[`{algo}`](algorithms/{REGISTRY[algo].name}.md) | {entry['by']}" if algo else "no | "
    return f"| {entry['year']} | {entry['name']} | {entry['family']} | {entry['paper']} | {here} |"


def scores(name: str) -> str:
    """Worst seed of every preset that `make learn` has measured."""
    found = []
    for path in sorted((ROOT / "benchmarks" / "results" / name).glob("*.json")):
        results = json.loads(path.read_text()).values()
        tasks = sorted({key for result in results for key in result if key.startswith("return_mean/")})
        for metric in tasks or ["return_mean"]:
            worst = min(result[metric] for result in results)
            preset = " ".join([f"`{name}/{path.stem}`", *metric.split("/")[1:]])
            found.append(f"{preset} {worst:.0f} (worst of {len(results)} seeds)")
    return f"Score: {'; '.join(found)}." if found else "Score: not measured."


if __name__ == "__main__":
    write_section(ROOT / "README.md", "registry", readme_table())
    (ROOT / "docs" / "sourcebook.md").write_text(sourcebook())
    for path, text in {**STUBS, **PAGES}.items():
        path.write_text(text())
    for page, name, text in sections():
        write_section(page, name, text)
