"""Policies: their protocol, and a policy as it travels to whoever acts with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.trees import Tree
from rl_training.models.actor_critic import Acted, Evaluated

LOGPROBS, VALUES = EVERYTHING = ("logprobs", "values")  # what a learner may read of the policy that acted


class Policy(Protocol):
    """A policy as the collector and evaluations use it. `state` is `[B, S]`, of width 0 without memory."""

    @property
    def device(self) -> torch.device: ...

    def initial_state(self, batch: int) -> Tensor: ...

    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted: ...

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        """Only asked of policies whose learners begin with random steps."""

    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        """Only asked where the learner reads values."""

    def evaluate_actions(self, obs: Tree, actions: Tensor) -> Evaluated:
        """Only asked where the learner reads log-probs, and `act` gave none."""

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]: ...

    def apply_controls(self, values: Mapping[str, float]) -> None:
        """Only asked of a policy whose algorithm has acting controls."""

    def load_state_dict(self, state: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True)
class PolicySnapshot:
    """All an actor needs, here or on another machine. No weights: the actor shares the learner's own."""

    version: int
    controls: Mapping[str, float] = field(default_factory=dict)
    acts_randomly: bool = False
    weights: Mapping[str, Any] | None = None


def apply_snapshot(policy: Policy, snapshot: PolicySnapshot) -> None:
    if snapshot.controls:
        policy.apply_controls(snapshot.controls)
    if snapshot.weights is not None:
        policy.load_state_dict(snapshot.weights)
