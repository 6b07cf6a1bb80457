"""One measurement, one JSON line: `python -m benchmarks.worker --peer ours --envs 8 --backend sync`."""

from __future__ import annotations

import argparse
import json
import platform
from importlib import metadata

import torch

from benchmarks.families import FAMILIES, Family
from benchmarks.peers import PEERS, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, default="ppo")
    parser.add_argument("--peer", choices=[*PEERS, "memory", "versions"], required=True)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--backend", choices=("auto", "sync"), default="auto")
    args = parser.parse_args()
    torch.set_num_threads(1)
    family = FAMILIES[args.family]
    if args.peer == "versions":
        answer: dict[str, object] = dict(versions(family))
    elif args.peer == "memory":
        answer = dict(memory(family, args.envs, args.backend))
    else:
        answer = PEERS[args.peer](family, args.envs, args.backend)._asdict()
    print(json.dumps(answer))


def versions(family: Family) -> dict[str, str]:
    names = ("rl-training", family.peer_package, "torch", "gymnasium", "numpy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


if __name__ == "__main__":
    main()
