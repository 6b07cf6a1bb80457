"""The trees, compiled: arrays of nodes for all roots at once; selection, expansion and backup of one root at a time.

Axes are `B` roots, `N` nodes (simulations + 1, the root is node 0), `A` actions, `D` depth. Every root is searched as
if it were alone: nothing here reads another root's rows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.compiled import compiled, inlined
from rl_training.ops.arrays import Floats
from rl_training.ops.search import SMALLEST_RANGE, considered_visits
from rl_training.search.rules import FIRST_PLAY_MEAN, PUCT, Rule

Ints = NDArray[np.int32]


class Tree(NamedTuple):
    child: Ints  # [B, N, A] node index, 0 where there is none
    visits: Ints  # [B, N, A]
    q: Floats  # [B, N, A] reward + discount · value of the child
    prior: Floats  # [B, N, A] probabilities; the root's have the noise mixed in
    logits: Floats  # [B, N, A] their logarithms, without noise; −∞ for actions that are not legal
    raw_value: Floats  # [B, N] the network's
    value: Floats  # [B, N] mean of the network's and all backed up
    node_visits: Ints  # [B, N] 1 + visits of the children
    reward: Floats  # [B, N] on the way to the node
    low: Floats  # [B] extremes of q over the tree
    high: Floats  # [B]
    path: Ints  # [B, D] nodes of the simulation that is under way
    path_action: Ints  # [B, D]
    depth: Ints  # [B] length of the path
    gumbel: Floats  # [B, A] noise of the root's choice
    width: Ints  # [B] number of actions that the root considers
    considered: Ints  # [W, S] visits that the root's choice must have at each simulation, by width
    weight: Floats  # [N + 1] PUCT's weight of the prior, by the node's visits
    scratch: Floats  # [A]


@compiled
def new_tree(
    logits: Floats,
    values: Floats,
    prior: Floats,
    gumbel: Floats,
    considered: Ints,
    weight: Floats,
    num_simulations: int,
    max_depth: int,
) -> Tree:
    """Trees of roots only; an action of probability 0 is never visited. A `prior` of no rows is softmax(logits)."""
    roots, actions = logits.shape
    nodes = num_simulations + 1
    tree = Tree(
        np.zeros((roots, nodes, actions), dtype=np.int32),
        np.zeros((roots, nodes, actions), dtype=np.int32),
        np.zeros((roots, nodes, actions), dtype=np.float32),
        np.empty((roots, nodes, actions), dtype=np.float32),
        np.empty((roots, nodes, actions), dtype=np.float32),
        np.empty((roots, nodes), dtype=np.float32),
        np.empty((roots, nodes), dtype=np.float32),
        np.ones((roots, nodes), dtype=np.int32),
        np.zeros((roots, nodes), dtype=np.float32),
        np.full(roots, np.inf, dtype=np.float32),
        np.full(roots, -np.inf, dtype=np.float32),
        np.empty((roots, max_depth), dtype=np.int32),
        np.empty((roots, max_depth), dtype=np.int32),
        np.empty(roots, dtype=np.int32),
        gumbel,
        np.empty(roots, dtype=np.int32),
        considered,
        weight,
        np.empty(actions, dtype=np.float32),
    )
    for b in range(roots):
        set_policy(tree, b, 0, logits[b])
        if len(prior) > 0:
            tree.prior[b, 0] = prior[b]
        tree.raw_value[b, 0] = tree.value[b, 0] = values[b]
        legal = (tree.prior[b, 0] > 0.0).sum()
        tree.width[b] = min(legal, len(considered) - 1)
    return tree


@lru_cache
def exploration_weights(count: int, rule: Rule) -> Floats:
    """√N · (c_init + ln((N + c_base + 1) / c_base)) for N < count."""
    visits = np.arange(count)
    logs = np.log((visits + rule.pb_c_base + 1.0) / rule.pb_c_base)
    return (np.sqrt(visits) * (rule.pb_c_init + logs)).astype(np.float32)


@lru_cache
def considered_table(actions: int, num_simulations: int, rule: Rule) -> Ints:
    """`considered_visits` by the number of actions that are considered."""
    widest = min(actions, rule.max_considered, num_simulations)
    return np.stack([considered_visits(width, num_simulations) for width in range(widest + 1)])


@inlined
def select(tree: Tree, b: int, simulation: int, rule: Rule) -> None:
    """Walks from the root to an action that was not taken yet, or to the greatest depth."""
    node, depth = 0, 0
    while True:
        if rule.kind == PUCT:
            action = _puct_action(tree, b, node, rule)
        elif node == 0:
            action = root_gumbel_action(tree, b, tree.considered[tree.width[b], simulation], rule)
        else:
            action = _interior_action(tree, b, node, rule)
        tree.path[b, depth] = node
        tree.path_action[b, depth] = action
        depth += 1
        node = tree.child[b, node, action]
        if node == 0 or depth == tree.path.shape[1]:
            break
    tree.depth[b] = depth


@inlined
def _puct_action(tree: Tree, b: int, node: int, rule: Rule) -> int:
    low, range_inverse = tree.low[b], np.float32(0.0)
    if tree.high[b] >= low:
        range_inverse = np.float32(1.0) / max(tree.high[b] - low, np.float32(SMALLEST_RANGE))
    else:  # nothing was backed up yet
        low = np.float32(0.0)
    unvisited = low
    if rule.first_play == FIRST_PLAY_MEAN:
        unvisited = _first_play_value(tree, b, node)
    weight = tree.weight[tree.node_visits[b, node]]
    for a in range(tree.visits.shape[2]):
        prior, visits = tree.prior[b, node, a], tree.visits[b, node, a]
        value = tree.q[b, node, a] if visits > 0 else unvisited
        normalized = min(max((value - low) * range_inverse, np.float32(0.0)), np.float32(1.0))
        score = normalized + prior * weight / np.float32(1 + visits)
        tree.scratch[a] = score if prior > np.float32(0.0) else np.float32(-np.inf)
    return _argmax(tree.scratch)


@inlined
def _argmax(scores: Floats) -> int:
    best, chosen = scores[0], 0
    for a in range(1, len(scores)):
        if scores[a] > best:
            best, chosen = scores[a], a
    return chosen


@inlined
def _first_play_value(tree: Tree, b: int, node: int) -> float:
    """The mean of the node's value and its visited actions'; q is 0 where there was no visit."""
    known, visited = tree.value[b, node], np.float32(1.0)
    for a in range(tree.visits.shape[2]):
        known += tree.q[b, node, a]
        visited += np.float32(1.0) if tree.visits[b, node, a] > 0 else np.float32(0.0)
    return known / visited


@inlined
def improved_logits(tree: Tree, b: int, node: int, rule: Rule) -> None:
    """logits + σ(completed q), into `scratch`."""
    weighted, mass, most = np.float32(0.0), np.float32(0.0), np.int32(0)
    low, high, unvisited = np.float32(np.inf), np.float32(-np.inf), np.float32(0.0)
    for a in range(tree.visits.shape[2]):
        prior, q, visits = tree.prior[b, node, a], tree.q[b, node, a], tree.visits[b, node, a]
        weighted += prior * q
        mass += prior if visits > 0 else np.float32(0.0)
        unvisited += np.float32(0.0) if visits > 0 else prior
        most = max(most, visits)
        low = min(low, q if visits > 0 else np.float32(np.inf))
        high = max(high, q if visits > 0 else np.float32(-np.inf))
    mixed = tree.raw_value[b, node]
    if most > 0:
        total = np.float32(tree.node_visits[b, node] - 1)
        mixed = (mixed + total * weighted / mass) / (np.float32(1.0) + total)
    if unvisited > np.float32(0.0):
        low, high = min(low, mixed), max(high, mixed)
    scale = np.float32((rule.c_visit + most) * rule.c_scale) / max(high - low, np.float32(1e-8))
    for a in range(tree.visits.shape[2]):
        value = tree.q[b, node, a] if tree.visits[b, node, a] > 0 else mixed
        tree.scratch[a] = tree.logits[b, node, a] + scale * (value - low)


@inlined
def _interior_action(tree: Tree, b: int, node: int, rule: Rule) -> int:
    improved_logits(tree, b, node, rule)
    top, total = np.float32(-np.inf), np.float32(0.0)
    for a in range(tree.visits.shape[2]):
        top = max(top, tree.scratch[a])
    for a in range(tree.visits.shape[2]):
        tree.scratch[a] = math.exp(tree.scratch[a] - top)
        total += tree.scratch[a]
    share, own = np.float32(1.0) / total, np.float32(1.0) / np.float32(tree.node_visits[b, node])
    for a in range(tree.visits.shape[2]):
        tree.scratch[a] = tree.scratch[a] * share - np.float32(tree.visits[b, node, a]) * own
    return _argmax(tree.scratch)


@inlined
def root_gumbel_action(tree: Tree, b: int, considered: int, rule: Rule) -> int:
    """The best by gumbel + logits + σ(completed q) among the legal actions with the considered number of visits."""
    improved_logits(tree, b, 0, rule)
    best, chosen = -np.inf, -1
    for a in range(len(tree.scratch)):
        score = tree.gumbel[b, a] + tree.scratch[a]
        if tree.visits[b, 0, a] == considered and tree.prior[b, 0, a] > 0.0 and (score > best or chosen < 0):
            best, chosen = score, a
    return chosen


@inlined
def back_up(tree: Tree, b: int, node: int, reward: float, value: float, discount: float) -> bool:
    """Adds the evaluated node at the path's end and tells every node on the path; False if it was there already."""
    last = tree.depth[b] - 1
    child = tree.child[b, tree.path[b, last], tree.path_action[b, last]]
    is_new = child == 0
    if is_new:
        child = node
        tree.child[b, tree.path[b, last], tree.path_action[b, last]] = node
        tree.reward[b, node] = reward
        tree.raw_value[b, node] = tree.value[b, node] = value
    else:  # the greatest depth was reached before: the same leaf counts again
        value = tree.raw_value[b, child]
        tree.node_visits[b, child] += 1
        tree.value[b, child] += (value - tree.value[b, child]) / tree.node_visits[b, child]
    for k in range(last, -1, -1):
        parent, action = tree.path[b, k], tree.path_action[b, k]
        value = tree.reward[b, child] + discount * value
        q = np.float32(tree.reward[b, child] + discount * tree.value[b, child])
        tree.visits[b, parent, action] += 1
        tree.q[b, parent, action] = q
        tree.low[b], tree.high[b] = min(tree.low[b], q), max(tree.high[b], q)
        tree.node_visits[b, parent] += 1
        tree.value[b, parent] += (value - tree.value[b, parent]) / tree.node_visits[b, parent]
        child = parent
    return is_new


@inlined
def set_policy(tree: Tree, b: int, node: int, logits: Floats) -> None:
    """Normalised log-probabilities and probabilities of a new node."""
    top, total = np.float32(-np.inf), np.float32(0.0)
    for a in range(len(logits)):
        top = max(top, logits[a])
    for a in range(len(logits)):
        tree.prior[b, node, a] = math.exp(logits[a] - top)
        total += tree.prior[b, node, a]
    shift = top + np.float32(math.log(total))
    for a in range(len(logits)):
        tree.prior[b, node, a] /= total
        tree.logits[b, node, a] = logits[a] - shift


@compiled
def select_all(tree: Tree, simulation: int, rule: Rule, parents: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
    """One path for every root; (parent, action) at its end is what the network has to evaluate."""
    for b in range(len(parents)):
        select(tree, b, simulation, rule)
        last = tree.depth[b] - 1
        parents[b], actions[b] = tree.path[b, last], tree.path_action[b, last]


@compiled
def back_up_all(tree: Tree, simulation: int, rewards: Floats, values: Floats, logits: Floats, discount: float) -> None:
    """What the network said of every root's new node."""
    for b in range(len(rewards)):
        if back_up(tree, b, simulation + 1, rewards[b], values[b], discount):
            set_policy(tree, b, simulation + 1, logits[b])


@compiled
def decisions(tree: Tree, rule: Rule) -> tuple[Ints, Floats, Floats, NDArray[np.int64], Floats]:
    """Visits, q, value and action of every root; for Gumbel's rule logits + σ(completed q), else nothing of use.

    The action is the most visited one; Gumbel's rule takes the best of those.
    """
    roots, _, count = tree.visits.shape
    visits, q, values = tree.visits[:, 0].copy(), tree.q[:, 0].copy(), tree.value[:, 0].copy()
    actions, improved = np.empty(roots, dtype=np.int64), np.empty((roots, count), dtype=np.float32)
    for b in range(roots):
        actions[b] = visits[b].argmax()
        if rule.kind != PUCT:
            actions[b] = root_gumbel_action(tree, b, visits[b, actions[b]], rule)
            improved[b] = tree.scratch
    return visits, q, values, actions, improved
