"""Masked observations as networks take them: what is looked at, and which actions are legal."""

from __future__ import annotations

from torch import Tensor

from rl_training.data.trees import Tree
from rl_training.envs.masks import ACTION_MASK, is_masked, seen_space, without_mask
from rl_training.envs.types import Spaces

ILLEGAL = -1e9  # a logit whose probability is exactly 0, and which a cross-entropy can be taken of


class ObsView:
    """Takes the mask off observations. Where there is none, they stay as they are and every action is legal."""

    def __init__(self, spaces: Spaces) -> None:
        self.is_masked = is_masked(spaces)
        self.space = seen_space(spaces)

    def seen(self, obs: Tree) -> Tree:
        return without_mask(obs) if self.is_masked else obs

    def masked(self, logits: Tensor, obs: Tree) -> Tensor:
        """The logits with `ILLEGAL` in place of those that the observations rule out."""
        return logits.masked_fill(obs[ACTION_MASK] == 0, ILLEGAL) if self.is_masked else logits
