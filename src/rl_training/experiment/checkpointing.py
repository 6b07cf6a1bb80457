"""Exact, atomic and safe storage of a state tree, and the numbered checkpoints of a run.

A tree is a nested dict or list of tensors, NumPy arrays and scalars, bool, int, float, str and None. It comes back with
the same types, dtypes and bits, with these exceptions: a tuple becomes a list, another mapping becomes a dict, arrays
are in native byte order, tensors are on the CPU without gradient, and tensors that shared memory no longer do.

On disk a tree is a directory: `tensors.safetensors` (a tensor is named by its JSON pointer in the tree), `state.json`
(the rest) and `manifest.json` (size and SHA-256 of both, and of itself). Nothing is unpickled.
"""

import errno
import json
import os
import re
import shutil
import struct
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.codec import StateDecoder, StateEncoder
from rl_training.experiment.files import cause_of, naming_failures
from rl_training.experiment.manifest import MANIFEST, STATE, TENSORS, verify_files, write_manifest

STAGING_PREFIX, ASIDE_PREFIX = ".tmp-", ".old-"
STEP_NAME = re.compile(r"step-(\d+)")
OS_ERROR = re.compile(r"(?:os error |code: )(\d+)")  # how safetensors tells why it could not write
MAX_POINTER_BYTES = 64


class NoSpaceError(CheckpointError):
    """A checkpoint does not fit on the disk."""


def save_tree(directory: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree, or replace the one that is there; a crash leaves the old one or the new one."""
    directory = Path(os.path.realpath(directory))
    _refuse_to_replace_other_things(directory)
    encoder = StateEncoder()
    state = json.dumps(encoder.encode(tree, ""), allow_nan=False)
    staging = _staging_path(directory)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        _write_files(staging, state, encoder.tensors)
        _move_into_place(staging, directory)
    except OSError as error:
        raise _not_written(directory, error.errno, cause_of(error)) from error
    except SafetensorError as error:
        code = OS_ERROR.search(str(error))
        raise _not_written(directory, code and int(code[1]), str(error)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _not_written(directory: Path, code: int | None, cause: str) -> CheckpointError:
    kind = NoSpaceError if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else CheckpointError
    return kind(f"cannot write the checkpoint {directory}: {cause}")


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
    verify_files(folder)


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
        self._had_home = self.root.parent.is_dir()
        self.keep = keep

    def save(self, step: int, tree: Mapping[str, Any]) -> Path:
        """Write `step-<step>`, point `latest` at it, and prune the oldest."""
        path = self.root / f"step-{step}"
        self._refuse_elsewhere()
        if path.is_symlink():
            path.unlink()  # the checkpoint takes the link's place, and leaves alone what it points to
        try:
            save_tree(path, tree)
        except NoSpaceError:
            if not self._make_room():
                raise
            save_tree(path, tree)
        with naming_failures(self.root, CheckpointError):
            self._point("latest", path)
            self._prune(step, self.keep)
        return path

    def _refuse_elsewhere(self) -> None:
        """A run that was moved or deleted is not begun again where it was; one that was received writes to itself."""
        if self._had_home and not self.root.parent.is_dir():
            raise CheckpointError(
                f"{self.root.parent} is gone: it was moved or deleted while the run was writing there"
            )
        if self.root.is_symlink():
            raise CheckpointError(f"{self.root} is a symbolic link, and a run's files must be its own")

    def _make_room(self) -> bool:
        """Deletes all but the latest and the best checkpoint; returns whether there was anything to delete."""
        before = self.steps()
        if before:
            self._prune(before[-1], 1)
        return self.steps() != before

    def mark_best(self, step: int) -> None:
        """Point `best` at a checkpoint that was saved before, unless it has been pruned."""
        if step in self.steps():
            self._point("best", self.root / f"step-{step}")

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
        try:
            staging.symlink_to(target.name, target_is_directory=True)
        except OSError:  # some file systems have no links: a file with the name does as well
            staging.write_text(target.name, encoding="ascii")
        os.replace(staging, link)
        _fsync(self.root)

    def _prune(self, step: int, keep: int) -> None:
        # After resuming from an older step, later steps of the abandoned future do not count.
        past = [old for old in self.steps() if old <= step]
        linked = {path.name for path in (self.latest(), self.best()) if path is not None}
        for name in {f"step-{old}" for old in past[:-keep]} - linked:
            # Renamed first: a half-deleted directory must not look like a checkpoint.
            os.replace(_on_disk(self.root / name), _staging_path(self.root / name))
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        replaced = [old for old in self.root.glob(f"{ASIDE_PREFIX}*") if _without_prefix(old).exists()]
        for leftover in [*self.root.glob(f"{STAGING_PREFIX}*"), *replaced]:
            if leftover.is_symlink() or leftover.is_file():
                leftover.unlink()
            else:
                shutil.rmtree(leftover, ignore_errors=True)


def _write_files(folder: Path, state: str, tensors: dict[str, Tensor]) -> None:
    (folder / STATE).write_text(state, encoding="ascii")
    save_file(tensors, folder / TENSORS)
    shutil.copymode(folder / STATE, folder / TENSORS)  # safetensors writes for the owner alone, whatever the umask
    write_manifest(folder)
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
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():  # some cannot do it for directories
            raise
    finally:
        os.close(descriptor)


def _parse_tensors(path: Path) -> dict[str, Tensor]:
    try:
        # Cloned, because they are maps of the file, and would change or crash with it.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error})") from error


def _parse_state(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    decoder = StateDecoder(tensors)
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
    if link.is_file() and link.stat().st_size <= MAX_POINTER_BYTES:
        return _find(root, link.read_text(encoding="ascii", errors="replace"))
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
