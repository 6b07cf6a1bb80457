"""The memory of an algorithm of phases, which keeps its rollouts until there are enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.data.trees import Tree, row_forms, tree_leaves, tree_map
from rl_training.errors import CheckpointError


class PhaseMemory:
    """Copies of flat batches, since a collector uses its buffers again; part of a checkpoint."""

    def __init__(self) -> None:
        self._batches: list[Mapping[str, Tree]] = []

    def __len__(self) -> int:
        """Batches, not rows."""
        return len(self._batches)

    def add(self, batch: Mapping[str, Tree]) -> None:
        if self._batches and row_forms(self._batches[-1], 1) != row_forms(batch, 1):
            raise CheckpointError("the stored rollouts of this phase have another form than the run's own")
        self._batches.append(tree_map(torch.clone, batch))

    def pop_all(self) -> dict[str, Tree]:
        """All rows as one batch; nothing is kept."""
        batches, self._batches = self._batches, []
        return tree_map(lambda *leaves: torch.cat(leaves), *batches)

    def state_dict(self) -> dict[str, Any]:
        return {"batches": list(self._batches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        batches = list(state["batches"])
        if any(row_forms(batch, 1) != row_forms(batches[0], 1) for batch in batches):
            raise ValueError("the batches differ in form")
        if any(len({len(leaf) for leaf in tree_leaves(batch)}) != 1 for batch in batches):
            raise ValueError("the columns of a batch differ in length")
        self._batches = batches
