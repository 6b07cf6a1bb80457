"""`search`: plans from many roots at once, with any model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.models.muzero import CompiledModel, Recurrent
from rl_training.models.scalezero_weights import ScaleZeroWeights
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
    values: NDArray[np.float32]  # [B], mean of all that was backed up to the root
    actions: NDArray[np.int64]  # [B], the search's own choice: most visited, or the best of Gumbel's finalists
    improved_logits: NDArray[np.float32] | None  # [B, A], logits + σ(completed q); None unless Gumbel's rule


def search(
    roots: Roots,
    model: Recurrent | CompiledModel | ScaleZeroWeights,
    *,
    rule: Rule,
    num_simulations: int,
    discount: float,
    max_depth: int | None = None,
) -> Searched:
    """`model` is called once a simulation for all roots; given a compiled one, all of it runs in compiled code."""
    from rl_training.search import mlp
    from rl_training.search import tree as kernels

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
    if isinstance(model, ScaleZeroWeights):
        from rl_training.search.transformer import recurrent_of

        model = recurrent_of(model)
    if isinstance(model, CompiledModel):
        found = mlp.plan(start, roots.latents.numpy(), *model, rule, np.float32(discount))
    else:
        tree = kernels.new_tree(*start)
        _run_simulations(kernels, tree, roots.latents, model, rule, num_simulations, np.float32(discount))
        found = kernels.decisions(tree, rule)
    visits, q, values, actions, improved = found
    return Searched(visits, q, values, actions, improved if rule.kind == GUMBEL else None)


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32)


def _run_simulations(
    kernels: Any,
    tree: Any,
    root_latents: Tensor,
    model: Recurrent,
    rule: Rule,
    num_simulations: int,
    discount: np.float32,
) -> None:
    rows = torch.arange(len(root_latents), device=root_latents.device)
    latents = root_latents.new_empty(num_simulations + 1, *root_latents.shape)
    latents[0] = root_latents
    parents, actions = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    for simulation in range(num_simulations):
        kernels.select_all(tree, simulation, rule, parents, actions)
        at, chosen = (torch.from_numpy(index).to(rows.device) for index in (parents, actions))
        following, *evaluated = model(latents[at, rows], chosen)
        latents[simulation + 1] = following
        rewards, values, logits = (answer.float().cpu().numpy() for answer in evaluated)
        kernels.back_up_all(tree, simulation, rewards, values, logits, discount, rule)
