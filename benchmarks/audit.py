"""Known vulnerabilities of the oldest dependencies that the package allows: `make audit`.

What cannot be asked about, because there is no network, is said, and is no failure.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import requires

FLOOR = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?>=([\d.]+)")


def floors(requirements: Iterable[str]) -> list[str]:
    """`name==version` for every dependency, also of the extras, that has a floor."""
    return sorted({f"{found[1]}=={found[2]}" for found in map(FLOOR.match, requirements) if found})


def main() -> int:
    if importlib.util.find_spec("pip_audit") is None:
        print("pip-audit is not installed: nothing was audited")
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("\n".join(floors(requires("rl-training") or ())))
        requirements.flush()
        flags = ["--no-deps", "--disable-pip", "--format", "json", "--requirement", requirements.name]
        done = subprocess.run([sys.executable, "-m", "pip_audit", *flags], capture_output=True, text=True, check=False)
    try:
        audited = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"the database could not be asked: {done.stderr.strip().splitlines()[-1:]}")
        return 0
    return report(audited)


def report(audited: list[dict[str, object]]) -> int:
    """Prints what was found; 1 if there is anything."""
    skipped = [entry["name"] for entry in audited if "skip_reason" in entry]
    vulnerable = [entry for entry in audited if entry.get("vulns")]
    print(f"{len(audited) - len(skipped)} floors audited, {len(vulnerable)} vulnerable; not known here: {skipped}")
    for entry in vulnerable:
        print(f"{entry['name']} {entry['version']}: {entry['vulns']}")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
