"""Exact, atomic and safe storage of a state tree, and the numbered checkpoints of a run.

A tree is a nested dict or list of tensors, NumPy arrays and scalars, bool, int, float, str and None. It comes back with
the same types, dtypes and bits, with these exceptions: a tuple becomes a list, another mapping becomes a dict, arrays
are in native byte order, tensors are on the CPU without gradient, and tensors that shared memory no longer do.

On disk a tree is a directory: `tensors.safetensors` (a tensor is named by its JSON pointer in the tree), `state.json`
(the rest) and `manifest.json` (size and SHA-256 of both, and of itself). Nothing is unpickled.
"""

import hashlib
import json
import math
import os
import re
import shutil
import struct
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_training import __version__
from rl_training.errors import CheckpointError, ConfigError

FORMAT, FORMAT_VERSION = "rl-training checkpoint", 1
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
MAX_MANIFEST_BYTES = 65_536
STAGING_PREFIX, ASIDE_PREFIX = ".tmp-", ".old-"
STEP_NAME = re.compile(r"step-(\d+)")

# {MARK: [kind, ...]} stands for a value that JSON cannot say exactly.
MARK = "$"
MAX_JSON_INT_BITS = 63
JSON_TYPES = (bool, int, float, str, type(None))
SCALAR_DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefdFD")


def save_tree(directory: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree, or replace the one that is there; a crash leaves the old one or the new one."""
    directory = Path(os.path.realpath(directory))
    _refuse_to_replace_other_things(directory)
    encoder = _Encoder()
    state = json.dumps(encoder.encode(tree, ""), allow_nan=False)
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = _staging_path(directory)
    staging.mkdir()
    try:
        _write_files(staging, state, encoder.tensors)
        _move_into_place(staging, directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def load_tree(directory: Path) -> dict[str, Any]:
    """The tree of a checkpoint directory; no tensor or state is parsed before all digests agree."""
    verify_checkpoint(directory)
    folder = _on_disk(directory)
    return _parse_state(folder / STATE, _parse_tensors(folder / TENSORS))


def verify_checkpoint(directory: Path) -> None:
    """Compare a checkpoint's files with its manifest, and the manifest with itself."""
    folder = _on_disk(directory)
    if not folder.is_dir():
        raise CheckpointError(f"{directory}: there is no such checkpoint directory")
    files = _read_manifest(folder / MANIFEST)["files"]
    for name in (STATE, TENSORS):
        actual = _fingerprint(folder / name)
        if actual != files[name]:
            raise CheckpointError(
                f"{folder / name}: damaged; its {actual['bytes']:,} bytes differ from what the manifest says"
            )


def resolve_checkpoint(path: Path, which: str | int = "latest") -> Path:
    """The checkpoint directory meant by a run, by its `checkpoints` directory, or by a checkpoint itself."""
    path = Path(path)
    if _is_checkpoint(path):
        return Path(os.path.realpath(path))
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such run or checkpoint directory")
    root = path if _steps_in(path) else path / "checkpoints"
    steps = _steps_in(root)
    if not steps:
        raise CheckpointError(f"{path}: neither a checkpoint nor a run that has one")
    found = _find(root, which)
    if found is None:
        raise CheckpointError(f"{root}: no checkpoint {which!r}; there are the steps {', '.join(map(str, steps))}")
    return found


def load_checkpoint(path: Path, which: str | int = "latest") -> dict[str, Any]:
    """`load_tree` of `resolve_checkpoint`; if that one is damaged, the error names an older one that is not."""
    directory = resolve_checkpoint(path, which)
    try:
        return load_tree(directory)
    except CheckpointError as error:
        intact = _intact_older_sibling(directory)
        if intact is None:
            raise
        raise CheckpointError(f"{error}; the older {intact} is intact and can be used instead") from error


class CheckpointStore:
    """The checkpoints of one run: one process writes (it holds the `RunLock`), any process may read."""

    def __init__(self, run_dir: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ConfigError(f"keep must be at least 1 checkpoint, got {keep}")
        self.root = Path(run_dir) / "checkpoints"
        self.keep = keep

    def save(self, step: int, tree: Mapping[str, Any], *, is_best: bool = False) -> Path:
        """Write `step-<step>`, point `latest` (and `best`) at it, and prune the oldest."""
        path = self.root / f"step-{step}"
        save_tree(path, tree)
        self._point("latest", path)
        if is_best:
            self._point("best", path)
        self._prune(step)
        return path

    def load(self, which: str | int = "latest") -> dict[str, Any]:
        return load_checkpoint(self.root, which)

    def latest(self) -> Path | None:
        return _find(self.root, "latest")

    def best(self) -> Path | None:
        return _find(self.root, "best")

    def steps(self) -> list[int]:
        return _steps_in(self.root)

    def _point(self, name: str, target: Path) -> None:
        link = self.root / name
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)  # a copy that followed links made a directory of it
        staging = _staging_path(link)
        staging.symlink_to(target.name, target_is_directory=True)
        os.replace(staging, link)
        _fsync(self.root)

    def _prune(self, step: int) -> None:
        # After resuming from an older step, later steps of the abandoned future do not count.
        past = [old for old in self.steps() if old <= step]
        linked = {path.name for path in (self.latest(), self.best()) if path is not None}
        for name in {f"step-{old}" for old in past[: -self.keep]} - linked:
            # Renamed first: a half-deleted directory must not look like a checkpoint.
            os.replace(_on_disk(self.root / name), _staging_path(self.root / name))
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        replaced = [old for old in self.root.glob(f"{ASIDE_PREFIX}*") if _without_prefix(old).exists()]
        for leftover in [*self.root.glob(f"{STAGING_PREFIX}*"), *replaced]:
            if leftover.is_symlink():
                leftover.unlink()
            else:
                shutil.rmtree(leftover, ignore_errors=True)


class _Encoder:
    """Splits a tree into what JSON can hold and the tensors, named by their JSON pointers (RFC 6901)."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._storages: set[int] = set()

    def encode(self, node: Any, path: str) -> Any:
        if isinstance(node, Mapping):
            items = {key: self.encode(child, _child_path(path, key)) for key, child in node.items()}
            return {MARK: ["dict", items]} if set(items) == {MARK} else items
        if isinstance(node, list | tuple):
            return [self.encode(child, f"{path}/{index}") for index, child in enumerate(node)]
        if isinstance(node, Tensor):
            self._add(path, node)
            return {MARK: ["tensor"]}
        if isinstance(node, np.ndarray):
            self._add(path, _as_tensor(node, path))
            return {MARK: ["array"]}
        return _encode_scalar(node, path)

    def _add(self, path: str, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.dtype is torch.complex128:
            raise CheckpointError(f"cannot save {path}: a tensor of {tensor.dtype} and {tensor.layout}; make it dense")
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        # safetensors refuses tensors that share memory.
        if dense.untyped_storage().data_ptr() in self._storages:
            dense = dense.clone()
        self._storages.add(dense.untyped_storage().data_ptr())
        self.tensors[path] = dense


class _Decoder:
    """Puts a tree together again; every tensor must be used, and none may be missing."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.unused = dict(tensors)

    def decode(self, node: Any, path: str) -> Any:
        if isinstance(node, list):
            return [self.decode(child, f"{path}/{index}") for index, child in enumerate(node)]
        if not isinstance(node, dict):
            return node
        if set(node) != {MARK}:
            return self._decode_items(node, path)
        match node[MARK]:
            case ["tensor"]:
                return self.unused.pop(path)
            case ["array"]:
                return self.unused.pop(path).numpy()
            case ["dict", dict(items)]:
                return self._decode_items(items, path)
            case marked:
                return _decode_scalar(marked, path)

    def _decode_items(self, items: dict[str, Any], path: str) -> dict[str, Any]:
        return {key: self.decode(child, _child_path(path, key)) for key, child in items.items()}


def _child_path(path: str, key: object) -> str:
    if not isinstance(key, str):
        raise CheckpointError(f"cannot save {path or '/'}: its key {key!r} is not a str; convert the keys")
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def _as_tensor(array: np.ndarray, path: str) -> Tensor:
    try:
        return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "A", "W"]))
    except TypeError as error:
        raise CheckpointError(f"cannot save {path}: an array of {array.dtype}; only numbers and bool can be") from error


def _encode_scalar(value: Any, path: str) -> Any:
    if isinstance(value, np.generic) and value.dtype.name in SCALAR_DTYPES:
        little_endian = np.asarray(value).astype(value.dtype.newbyteorder("<"))
        return {MARK: ["scalar", value.dtype.name, little_endian.tobytes().hex()]}
    # Exact types only: an Enum or another subclass would come back as something else.
    if type(value) not in JSON_TYPES:
        raise CheckpointError(f"cannot save {path}: {type(value).__name__} is not a type that a checkpoint can hold")
    if type(value) is int and value.bit_length() > MAX_JSON_INT_BITS:
        return {MARK: ["int", hex(value)]}
    if type(value) is float and not math.isfinite(value):
        return {MARK: ["float", struct.pack(">d", value).hex()]}
    return value


def _decode_scalar(marked: Any, path: str) -> Any:
    match marked:
        case ["scalar", str(name), str(data)] if name in SCALAR_DTYPES:
            (value,) = np.frombuffer(bytes.fromhex(data), np.dtype(name).newbyteorder("<"))
            return np.dtype(name).type(value)
        case ["int", str(digits)]:
            return int(digits, 16)
        case ["float", str(bits)]:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
    raise ValueError(f"unknown kind of value at {path}")


def _write_files(folder: Path, state: str, tensors: dict[str, Tensor]) -> None:
    (folder / STATE).write_text(state, encoding="ascii")
    save_file(tensors, folder / TENSORS)
    shutil.copymode(folder / STATE, folder / TENSORS)  # safetensors writes for the owner alone, whatever the umask
    files = {name: _fingerprint(folder / name) for name in (STATE, TENSORS)}
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "package_version": __version__, "files": files}
    (folder / MANIFEST).write_bytes(_sealed(header))
    for path in (folder / STATE, folder / TENSORS, folder / MANIFEST, folder):
        _fsync(path)


def _move_into_place(staging: Path, directory: Path) -> None:
    # A directory cannot replace another in one step: until the new one is in place, `_on_disk` finds the old one aside.
    aside = directory.with_name(ASIDE_PREFIX + directory.name)
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    os.replace(staging, directory)
    _fsync(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _on_disk(directory: Path) -> Path:
    """Where a checkpoint is: in its place, or aside if a process was killed while replacing it."""
    directory = Path(os.path.realpath(directory))
    aside = directory.with_name(ASIDE_PREFIX + directory.name)
    return aside if aside.is_dir() and not directory.exists() else directory


def _refuse_to_replace_other_things(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: is a file; choose another name for the checkpoint")
    others = sorted({path.name for path in directory.iterdir()} - {STATE, TENSORS, MANIFEST})
    if others:
        raise CheckpointError(f"{directory}: not replaced, it holds {others[0]!r}; choose another directory")


def _staging_path(path: Path) -> Path:
    return path.with_name(f"{STAGING_PREFIX}{path.name}-{uuid.uuid4().hex[:12]}")


def _without_prefix(aside: Path) -> Path:
    return aside.with_name(aside.name.removeprefix(ASIDE_PREFIX))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    if not path.is_file():
        raise CheckpointError(f"{path}: missing from the checkpoint")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _sealed(header: Mapping[str, Any]) -> bytes:
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
    if _sealed(header) != content or not isinstance(files, dict) or set(files) != {STATE, TENSORS}:
        raise CheckpointError(f"{path}: damaged; it does not have the digest that it states")
    return header


def _parse_tensors(path: Path) -> dict[str, Tensor]:
    try:
        # Cloned, because they are maps of the file, and would change or crash with it.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error})") from error


def _parse_state(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    decoder = _Decoder(tensors)
    try:
        tree = decoder.decode(json.loads(path.read_bytes()), "")
    except KeyError as error:
        raise CheckpointError(f"{path}: refers to the tensor {error}, which {TENSORS} does not have") from error
    except (ValueError, TypeError, RecursionError, struct.error) as error:
        raise CheckpointError(f"{path}: not a state this package wrote ({error})") from error
    if not isinstance(tree, dict) or decoder.unused:
        raise CheckpointError(f"{path}: not a state this package wrote; it does not use all of {TENSORS}")
    return tree


def _is_checkpoint(path: Path) -> bool:
    folder = _on_disk(path)
    named_as_step = STEP_NAME.fullmatch(os.path.basename(os.path.realpath(path))) is not None
    return folder.is_dir() and (named_as_step or (folder / MANIFEST).is_file())


def _steps_in(root: Path) -> list[int]:
    names: Iterable[str] = (path.name.removeprefix(ASIDE_PREFIX) for path in root.glob("*") if not path.is_symlink())
    return sorted({int(match[1]) for match in map(STEP_NAME.fullmatch, names) if match})


def _find(root: Path, which: str | int) -> Path | None:
    """The checkpoint called `latest`, `best`, or by its step (`100` or `step-100`)."""
    if which not in ("latest", "best"):
        path = root / f"step-{str(which).removeprefix('step-')}"
        return path if _is_checkpoint(path) else None
    link = root / str(which)
    if _is_checkpoint(link):
        return root / os.readlink(link) if link.is_symlink() else link
    # Some copies lose the links; what is latest can still be told.
    steps = _steps_in(root) if which == "latest" else []
    return root / f"step-{steps[-1]}" if steps else None


def _intact_older_sibling(directory: Path) -> Path | None:
    match = STEP_NAME.fullmatch(directory.name)
    older = [step for step in _steps_in(directory.parent) if match and step < int(match[1])]
    for step in reversed(older):
        path = directory.with_name(f"step-{step}")
        try:
            verify_checkpoint(path)
        except CheckpointError:
            continue
        return path
    return None
