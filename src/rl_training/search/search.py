"""`search`: plans from many roots at once, with any model."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.replaceable import replaceable
from rl_training.search.rules import GUMBEL, Rule, considered_table, exploration_weights


class Roots(NamedTuple):
    """Where searches begin. `prior` defaults to softmax(logits); a noisy one is mixed by the caller."""

    latents: Tensor  # [B, …]
    logits: NDArray[np.float32]  # [B, A], −∞ for actions that are not legal
    values: NDArray[np.float32]  # [B]
    prior: NDArray[np.floating] | None = None
    gumbel: NDArray[np.floating] | None = None


class Searched(NamedTuple):
    visits: NDArray[np.int32]  # [B, A]
    q: NDArray[np.float32]  # [B, A], 0 where an action was not visited
    values: NDArray[np.float32]  # [B], mean of all that was backed up; by Gumbel's rule the improved policy's
    actions: NDArray[np.int64]  # [B], the search's own choice: most visited, or the best of Gumbel's finalists
    improved_logits: NDArray[np.float32] | None  # [B, A], logits + σ(completed q); None unless Gumbel's rule


class Model(Protocol):
    """A model that a search asks once a simulation, for one row of each root."""

    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(latents, rewards, values, policy logits) after an action.

        What a model has to carry besides its latent, such as a recurrent state, goes into the latent.
        """


def search(
    roots: Roots,
    model: Model,
    *,
    rule: Rule,
    num_simulations: int,
    discount: float,
    max_depth: int | None = None,
) -> Searched:
    shape = roots.logits.shape
    start = (
        _floats(roots.logits),
        _floats(roots.values),
        np.empty((0, shape[1]), dtype=np.float32) if roots.prior is None else _floats(roots.prior),
        np.zeros(shape, dtype=np.float32) if roots.gumbel is None else _floats(roots.gumbel),
        considered_table(shape[1], num_simulations, rule),
        exploration_weights(num_simulations + 2, rule),
        num_simulations,
        min(max_depth or num_simulations, num_simulations),
    )
    signed = np.float32(discount if rule.players == 1 else -discount)
    visits, q, values, actions, improved = simulate(model, roots.latents, start, rule, signed)
    return Searched(visits, q, values, actions, improved if rule.kind == GUMBEL else None)


@replaceable
def simulate(model: Model, root_latents: Tensor, start: tuple[Any, ...], rule: Rule, discount: np.float32) -> Any:
    """Grows trees from `start`, the arguments of `new_tree`, and returns their `decisions`."""
    return grow_trees(model, root_latents, start, rule, discount)


def grow_trees(model: Model, root_latents: Tensor, start: tuple[Any, ...], rule: Rule, discount: np.float32) -> Any:
    from rl_training.search import tree as compiled  # loads numba, which only planners need
    from rl_training.search.decisions import decisions

    tree = compiled.new_tree(*start)
    num_simulations = start[-2]
    rows = torch.arange(len(root_latents), device=root_latents.device)
    latents = root_latents.new_empty(num_simulations + 1, *root_latents.shape)
    latents[0] = root_latents
    parents, actions = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    for simulation in range(num_simulations):
        compiled.select_all(tree, simulation, rule, parents, actions)
        at, chosen = (torch.from_numpy(index).to(rows.device) for index in (parents, actions))
        following, *evaluated = model.recurrent(latents[at, rows], chosen)
        latents[simulation + 1] = following
        rewards, values, logits = (answer.float().cpu().numpy() for answer in evaluated)
        compiled.back_up_all(tree, simulation, rewards, values, logits, discount, rule)
    return decisions(tree, rule)


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32)
