"""Demonstrations: an expert's transitions, in one safetensors file with a JSON header, or from a Minari dataset."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rl_training.data.trees import Tree, tree_map
from rl_training.errors import ConfigError, import_extra

FORMAT = "rl-training demonstrations 1"
PACKAGED = Path(__file__).parent.parent / "assets" / "demonstrations"
COLUMNS = ("actions", "rewards", "terminated", "truncated")  # besides the observations
HOW_TO_RECORD = "record some with: rl-training record-demos RUN --episodes 10 --output demos.safetensors"


@dataclass(frozen=True)
class Demonstrations:
    """Rows of whole episodes, one after the other; `actions` are what the environment executed."""

    obs: Tree
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    env_id: str = ""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def episode_returns(self) -> list[float]:
        ends = (self.terminated | self.truncated).nonzero()[:, 0] + 1
        return [float(part.sum()) for part in torch.tensor_split(self.rewards, ends)[:-1]]

    def save(self, path: Path) -> None:
        columns = {name: getattr(self, name) for name in COLUMNS}
        tensors = columns | {f"obs{key}": leaf for key, leaf in _named_leaves(self.obs).items()}
        header = {"format": FORMAT, "env_id": self.env_id, "episode_returns": json.dumps(self.episode_returns)}
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=header)


def load_demonstrations(source: str) -> Demonstrations:
    """A file, the name of a packaged one, or `minari:DATASET`."""
    if source.startswith("minari:"):
        return _from_minari(source.removeprefix("minari:"))
    path = next((p for p in (Path(source), PACKAGED / f"{source}.safetensors") if p.is_file()), None)
    if path is None:
        raise ConfigError(f"no demonstrations at {source!r}; {HOW_TO_RECORD}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is not a file of demonstrations: {error}") from error
    if header.get("format") != FORMAT:
        raise ConfigError(f"{path} is not a file of demonstrations: its header does not say {FORMAT!r}")
    obs = _unnamed({name.removeprefix("obs"): leaf for name, leaf in tensors.items() if name.startswith("obs")})
    columns = {name: leaf for name, leaf in tensors.items() if name in COLUMNS}
    if missing := [name for name in COLUMNS if name not in columns]:
        raise ConfigError(f"{path} is not a file of demonstrations: it has no {', '.join(missing)}")
    return Demonstrations(obs=obs, env_id=header.get("env_id", ""), **columns)


def concatenate(parts: list[Demonstrations]) -> Demonstrations:
    return Demonstrations(
        obs=tree_map(lambda *leaves: torch.cat(leaves), *(part.obs for part in parts)),
        env_id=parts[0].env_id,
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in COLUMNS},
    )


def _from_minari(name: str) -> Demonstrations:
    minari = import_extra("minari", "minari")
    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"no Minari dataset {name!r} on this machine: {error}") from error
    env_id = dataset.env_spec.id if dataset.env_spec is not None else ""
    return concatenate([_from_minari_episode(episode, env_id) for episode in dataset.iterate_episodes()])


def _from_minari_episode(episode: Any, env_id: str) -> Demonstrations:
    """Minari keeps the final observation as one row more."""
    return Demonstrations(
        obs=tree_map(lambda leaf: torch.from_numpy(np.asarray(leaf)[:-1].copy()), episode.observations),
        actions=torch.from_numpy(np.asarray(episode.actions)),
        rewards=torch.from_numpy(np.asarray(episode.rewards, dtype=np.float32)),
        terminated=torch.from_numpy(np.asarray(episode.terminations, dtype=bool)),
        truncated=torch.from_numpy(np.asarray(episode.truncations, dtype=bool)),
        env_id=env_id,
    )


def _named_leaves(tree: Tree, path: str = "") -> dict[str, Tensor]:
    if not isinstance(tree, dict):
        return {path: tree}
    return {name: leaf for key, value in tree.items() for name, leaf in _named_leaves(value, f"{path}/{key}").items()}


def _unnamed(leaves: dict[str, Tensor]) -> Tree:
    if list(leaves) == [""]:
        return leaves[""]
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *parents, last = name.removeprefix("/").split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree
