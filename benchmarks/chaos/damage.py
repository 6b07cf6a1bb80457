"""Checkpoints that were damaged, and files that a stranger forged: none may load, none may run anything."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.cli.main import main as run_command
from rl_training.errors import RLTrainingError
from rl_training.experiment.checkpointing import load_tree
from rl_training.experiment.manifest import MANIFEST, STATE, TENSORS, write_manifest

Change = Callable[[Path], object]
FILES = (STATE, TENSORS, MANIFEST)
FLIPS = 40  # of one bit, in each file
TAGS = ("!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system")
HEADER_LENGTHS = (0, 1, 7, 2**20, 2**31, 2**40, 2**60, 2**63, 2**64 - 1)


class Verdict(NamedTuple):
    what: str
    tried: int
    wrong: list[str]  # those that loaded, ended without a sentence, or ran something


def damages(checkpoint: Path, rng: random.Random) -> Verdict:
    """Changes one file at a time as disks, copies and editors do; whatever loads is wrong."""
    tried, wrong = 0, []
    for name in FILES:
        content = (checkpoint / name).read_bytes()
        for what, change in _damages(content, rng):
            tried += 1
            if not _is_refused(checkpoint, name, change):
                wrong.append(f"{name}: {what}")
    return Verdict("damaged checkpoint files", tried, wrong)


def _damages(content: bytes, rng: random.Random) -> Iterator[tuple[str, Change]]:
    size = len(content)
    for cut in (0, 1, size // 2, size - 1):
        yield f"cut to {cut} bytes", lambda path, cut=cut: path.write_bytes(content[:cut])
    yield "a byte more", lambda path: path.write_bytes(content + b"\0")
    yield "zeros", lambda path: path.write_bytes(bytes(size))
    yield "missing", Path.unlink
    yield "a directory", lambda path: (path.unlink(), path.mkdir())
    for _ in range(FLIPS):
        place, bit = rng.randrange(size), 1 << rng.randrange(8)
        flipped = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        yield f"bit {bit} of byte {place}", lambda path, flipped=flipped: path.write_bytes(flipped)


def _is_refused(checkpoint: Path, name: str, change: Change) -> bool:
    copy = checkpoint.with_name("step-0")
    shutil.copytree(checkpoint, copy)
    try:
        change(copy / name)
        load_tree(copy)
    except RLTrainingError:
        return True
    finally:
        shutil.rmtree(copy)
    return False


def forgeries(run_dir: Path) -> Verdict:
    """Pickles, tags and absurd headers, with digests that agree: nothing runs, and every end is a sentence."""
    canary = run_dir.with_name("canary")
    command = f"touch {canary}"
    tried, wrong = 0, []
    for what, forge in _forgeries(command):
        tried += 1
        copy = run_dir.with_name("forged")
        shutil.copytree(run_dir, copy, symlinks=True)
        forge(copy)
        try:
            codes = [run_command([*verb, str(copy), "--json"]) for verb in (("show",), ("evaluate", "--episodes", "1"))]
        except Exception as error:  # noqa: BLE001 - any traceback is a finding
            codes = [type(error).__name__]
        if canary.exists() or 0 in codes[1:] or not all(isinstance(code, int) for code in codes):
            wrong.append(f"{what}: {codes}")
        canary.unlink(missing_ok=True)
        shutil.rmtree(copy)
    return Verdict("forged files (pickles, YAML tags, tensor headers)", tried, wrong)


class _Command:
    """Pickled, it runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (self.command,)


def _forgeries(command: str) -> Iterator[tuple[str, Change]]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = pickle.dumps(_Command(command), protocol)
        for name in (STATE, TENSORS, MANIFEST):
            yield f"a pickle (protocol {protocol}) as {name}", _in_checkpoint(name, content)
        yield f"a pickle (protocol {protocol}) as config.yaml", _in_state_and_config(content)
    for tag in TAGS:
        for text in (f"{tag} ['{command}']", f"algo: {tag} ['{command}']", f"? {tag} ['{command}']\n: 1"):
            yield f"{text[:40]}… as config.yaml", _in_state_and_config(text.encode())
    for length in HEADER_LENGTHS:
        for rest in (b"", b"{}", b"{" * 64, bytes(64)):
            content = struct.pack("<Q", length) + rest
            yield f"a header of {length} bytes before {rest[:3]!r}", _in_checkpoint(TENSORS, content)
    for name, shape in (("F32", [2**62]), ("F64", [-1]), ("F32", [2**40, 2**40]), ("Q9", [1]), ("U8", [0] * 999)):
        header = json.dumps({"/x": {"dtype": name, "shape": shape, "data_offsets": [0, 4]}}).encode()
        yield (
            f"a tensor of {name}{shape[:2]}",
            _in_checkpoint(TENSORS, struct.pack("<Q", len(header)) + header + bytes(4)),
        )
    for text in (b"[" * 100_000, b'{"a":' * 50_000, b"1e999", b"NaN", b'"\\ud800"', b"{}", b"[]", b"null"):
        yield f"{text[:8]!r}… as {STATE}", _in_checkpoint(STATE, text)


def _in_checkpoint(name: str, content: bytes) -> Change:
    def forge(run_dir: Path) -> None:
        checkpoint = run_dir / "checkpoints" / "latest"
        (checkpoint / name).write_bytes(content)
        if name != MANIFEST:
            write_manifest(checkpoint)

    return forge


def _in_state_and_config(content: bytes) -> Change:
    """The config that a reader of the directory sees, beside a state that is a forgery as well."""

    def forge(run_dir: Path) -> None:
        (run_dir / "config.yaml").write_bytes(content)
        _in_checkpoint(STATE, content)(run_dir)

    return forge
