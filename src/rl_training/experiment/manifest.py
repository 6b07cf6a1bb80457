"""The manifest of a checkpoint: size and SHA-256 of its files, sealed with its own digest."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training import __version__
from rl_training.errors import CheckpointError

FORMAT, FORMAT_VERSION = "rl-training checkpoint", 2
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
MAX_MANIFEST_BYTES = 65_536


def write_manifest(folder: Path) -> None:
    """Describes the files as they lie in the folder."""
    files = {name: _fingerprint(folder / name) for name in (STATE, TENSORS)}
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "package_version": __version__, "files": files}
    (folder / MANIFEST).write_bytes(sealed(header))


def verify_files(folder: Path) -> None:
    """Compares the files with the manifest, and the manifest with itself; sizes first, since they cost nothing."""
    files = _read_manifest(folder / MANIFEST)["files"]
    for name in (STATE, TENSORS):
        path, stated = folder / name, files[name]
        if not path.is_file():
            raise CheckpointError(f"{path}: missing from the checkpoint")
        size = path.stat().st_size
        if not isinstance(stated, dict) or size != stated.get("bytes") or _fingerprint(path) != stated:
            raise CheckpointError(f"{path}: damaged; its {size:,} bytes differ from what the manifest says")


def _fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def sealed(header: Mapping[str, Any]) -> bytes:
    """A manifest's bytes, which end with the digest of what stands before."""
    seal = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    return json.dumps({**header, "sha256": seal}, indent=2).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path}: missing; this is not a checkpoint, or not a whole one")
    content = path.read_bytes() if path.stat().st_size <= MAX_MANIFEST_BYTES else b""
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged or foreign; it is not a manifest") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError(f"{path}: damaged or foreign; it does not name the format {FORMAT!r}")
    if header.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format version {header.get('format_version')!r} by rl-training {header.get('package_version')!r};"
            f" this is rl-training {__version__}, which reads version {FORMAT_VERSION}"
        )
    header.pop("sha256", None)
    files = header.get("files")
    if sealed(header) != content or not isinstance(files, dict) or set(files) != {STATE, TENSORS}:
        raise CheckpointError(f"{path}: damaged; it does not have the digest that it states")
    return header
