"""Runs on the Hugging Face Hub: `push` uploads a checkpoint with its card, `pull` brings one here as a run directory.

What is pulled is data: settings, metrics and safetensors, each by its name. No other file of a repository is fetched,
and whoever opens the run afterwards is held to the rules of a run that a stranger made.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, import_extra
from rl_training.experiment.checkpointing import resolve_checkpoint, verify_checkpoint
from rl_training.experiment.logging import JSONL_NAME
from rl_training.experiment.manifest import MANIFEST, STATE, TENSORS
from rl_training.tools.card import CARD_NAME, CURVE_NAME, write_card

OF_RUN = ("config.yaml", JSONL_NAME)
OF_CHECKPOINT = (MANIFEST, STATE, TENSORS)
FETCHED = [CARD_NAME, CURVE_NAME, *OF_RUN, *(f"checkpoints/step-*/{name}" for name in OF_CHECKPOINT)]


class Shared(NamedTuple):
    repo: str
    path: Path
    files: tuple[str, ...]
    url: str


def push_run(
    run_dir: Path | str,
    repo: str,
    *,
    which: str | int = "latest",
    private: bool = False,
    revision: str | None = None,
    endpoint: str | None = None,
) -> Shared:
    """Uploads one checkpoint of a run with its settings, metrics and card to a model repository, made if need be."""
    hub = import_extra("huggingface_hub", extra="hub")
    run_dir = Path(run_dir)
    checkpoint = resolve_checkpoint(run_dir, which)
    if not (run_dir / "config.yaml").is_file():
        raise ConfigError(f"{run_dir} is not a run directory: it has no config.yaml")
    verify_checkpoint(checkpoint)
    api = hub.HfApi(endpoint=endpoint)
    with tempfile.TemporaryDirectory() as folder:
        _stage(run_dir, checkpoint, Path(folder), repo)
        with _told(hub, repo):
            api.create_repo(repo, exist_ok=True, private=private)
            message = f"Upload step {checkpoint.name.removeprefix('step-')}"
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message, revision=revision)
        return Shared(repo, run_dir, _names(Path(folder)), f"{api.endpoint}/{repo}")


def pull_run(repo: str, output: Path | str, *, revision: str | None = None, endpoint: str | None = None) -> Shared:
    """Fetches a run's settings, metrics and checkpoints into a new directory, and verifies their digests."""
    hub = import_extra("huggingface_hub", extra="hub")
    output = Path(output)
    if output.exists() and any(output.iterdir()):
        raise ConfigError(f"{output} is there already; choose another --output")
    with _told(hub, repo):
        hub.snapshot_download(
            repo, revision=revision, local_dir=str(output), allow_patterns=FETCHED, endpoint=endpoint, max_workers=2
        )
    shutil.rmtree(output / ".cache", ignore_errors=True)
    if not (output / "config.yaml").is_file():
        raise CheckpointError(f"{repo} holds no run of this package: it has no config.yaml")
    verify_checkpoint(resolve_checkpoint(output))
    return Shared(repo, output, _names(output), f"{hub.HfApi(endpoint=endpoint).endpoint}/{repo}")


@contextmanager
def _told(hub: Any, repo: str) -> Iterator[None]:
    """Says in one line what the hub refused: no such repository, no login, no network, a name that is none."""
    errors = hub.errors
    try:
        yield
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.HFValidationError, OSError) as error:
        raise RLTrainingError(f"{repo}: {' '.join(str(error).split())[:300]}") from error


def _stage(run_dir: Path, checkpoint: Path, folder: Path, repo: str) -> None:
    """Copies what is to be shared, and nothing that a link in the run leads to."""
    sources = {name: run_dir / name for name in OF_RUN}
    sources |= {f"checkpoints/{checkpoint.name}/{name}": checkpoint / name for name in OF_CHECKPOINT}
    for name, source in sources.items():
        if source.is_file() and not source.is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    write_card(run_dir, folder, which=checkpoint.name, repo=repo)


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))
