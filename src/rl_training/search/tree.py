"""The trees, compiled: arrays of nodes for all roots at once; selection, expansion and backup of one root at a time.

Axes are `B` roots, `N` nodes (simulations + 1, the root is node 0), `A` actions, `D` depth. Every root is searched as
if it were alone: nothing here reads another root's rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.tools.arrays import Floats
from rl_training.kernels.tools.compiled import compiled, inlined
from rl_training.kernels.tools.elementary import exponential
from rl_training.ops.search import SMALLEST_RANGE
from rl_training.search.rules import FIRST_PLAY_MEAN, GUMBEL, PUCT, Rule

Ints = NDArray[np.int32]

# What is known of an edge, an action of a node. Logits are without the noise that the root's priors have mixed in,
# and −∞ for actions that are not legal; q is reward + discount · value of the child.
PRIOR, LOGIT, Q, VISITS = range(4)
# And of a node: its value is the mean of the network's and all backed up, its reward is on the way to it, its visits
# are 1 + those of its edges.
RAW_VALUE, VALUE, REWARD, NODE_VISITS = range(4)


class SearchTree(NamedTuple):
    """The trees of all roots. A node's numbers lie together, counts among them: a path touches few lines of cache."""

    edges: Floats  # [B, N, 4, A]
    nodes: Floats  # [B, N, 4]
    child: Ints  # [B, N, A] node index, 0 where there is none
    choice: Ints  # [B, N] Gumbel's rule: what is taken next below the root, which depends on the node's own rows only
    low: Floats  # [B, P] extremes of q over the tree, by the player to move
    high: Floats  # [B, P]
    path: Ints  # [B, D] nodes of the simulation that is under way
    path_action: Ints  # [B, D]
    depth: Ints  # [B] length of the path
    gumbel: Floats  # [B, A] noise of the root's choice
    width: Ints  # [B] number of actions that the root considers
    considered: Ints  # [W, S] visits that the root's choice must have at each simulation, by width
    weight: Floats  # [N + 1] PUCT's weight of the prior, by the node's visits
    scratch: Floats  # [D · A]


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
) -> SearchTree:
    """Trees of roots only; an action of probability 0 is never visited. A `prior` of no rows is softmax(logits)."""
    roots, actions = logits.shape
    nodes = num_simulations + 1
    tree = SearchTree(
        np.empty((roots, nodes, 4, actions), dtype=np.float32),
        np.empty((roots, nodes, 4), dtype=np.float32),
        np.empty((roots, nodes, actions), dtype=np.int32),
        np.empty((roots, nodes), dtype=np.int32),
        np.full((roots, 2), np.inf, dtype=np.float32),
        np.full((roots, 2), -np.inf, dtype=np.float32),
        np.empty((roots, max_depth), dtype=np.int32),
        np.empty((roots, max_depth), dtype=np.int32),
        np.empty(roots, dtype=np.int32),
        gumbel,
        np.empty(roots, dtype=np.int32),
        considered,
        weight,
        np.empty(max_depth * actions, dtype=np.float32),
    )
    for b in range(roots):
        _add_node(tree, b, 0, np.float32(0.0), values[b], logits[b])
        if len(prior) > 0:
            tree.edges[b, 0, PRIOR] = prior[b]
        legal = (tree.edges[b, 0, PRIOR] > 0.0).sum()
        tree.width[b] = min(legal, len(considered) - 1)
    return tree


@inlined
def select(tree: SearchTree, b: int, simulation: int, rule: Rule) -> None:
    """Walks from the root to an action that was not taken yet, or to the greatest depth."""
    node, depth = 0, 0
    while True:
        if rule.kind == PUCT:
            action = _puct_action(tree, b, node, depth & (rule.players - 1), rule)
        elif node == 0:
            action = root_gumbel_action(tree, b, tree.considered[tree.width[b], simulation], rule)
        else:
            action = tree.choice[b, node]
        tree.path[b, depth] = node
        tree.path_action[b, depth] = action
        depth += 1
        node = tree.child[b, node, action]
        if node == 0 or depth == tree.path.shape[1]:
            break
    tree.depth[b] = depth


@inlined
def _puct_action(tree: SearchTree, b: int, node: int, player: int, rule: Rule) -> int:
    low, high, range_inverse = tree.low[b, player], tree.high[b, player], np.float32(0.0)
    if high >= low:
        range_inverse = np.float32(1.0) / max(high - low, np.float32(SMALLEST_RANGE))
    else:  # nothing was backed up yet
        low = np.float32(0.0)
    edges, unvisited = tree.edges[b, node], low
    if rule.first_play == FIRST_PLAY_MEAN:
        unvisited = _first_play_value(edges, tree.nodes[b, node, VALUE])
    weight = tree.weight[int(tree.nodes[b, node, NODE_VISITS])]
    for a in range(edges.shape[1]):
        prior, q, visits = edges[PRIOR, a], edges[Q, a], edges[VISITS, a]
        value = q if visits > 0 else unvisited
        normalized = min(max((value - low) * range_inverse, np.float32(0.0)), np.float32(1.0))
        score = normalized + prior * weight / (np.float32(1.0) + visits)
        tree.scratch[a] = score if prior > np.float32(0.0) else np.float32(-np.inf)
    return _argmax(tree.scratch[: edges.shape[1]])


@inlined
def _argmax(scores: Floats) -> int:
    best, chosen = scores[0], 0
    for a in range(1, len(scores)):
        if scores[a] > best:
            best, chosen = scores[a], a
    return chosen


@inlined
def _first_play_value(edges: Floats, value: np.float32) -> np.float32:
    """The mean of the node's value and its visited actions'; q is 0 where there was no visit."""
    visited = np.float32(1.0)
    for a in range(edges.shape[1]):
        value += edges[Q, a]
        visited += np.float32(1.0) if edges[VISITS, a] > 0 else np.float32(0.0)
    return value / visited


@inlined
def improved_logits(tree: SearchTree, b: int, node: int, rule: Rule, out: Floats) -> tuple[np.float32, np.float32]:
    """logits + σ(completed q), into `out`; returns the greatest of them and the value of unvisited actions."""
    edges = tree.edges[b, node]
    weighted, mass, most = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    low, high, unvisited = np.float32(np.inf), np.float32(-np.inf), np.float32(0.0)
    for a in range(edges.shape[1]):
        prior, q, visits = edges[PRIOR, a], edges[Q, a], edges[VISITS, a]
        weighted += prior * q
        mass += prior if visits > 0 else np.float32(0.0)
        unvisited += np.float32(0.0) if visits > 0 else prior
        most = max(most, visits)
        low = min(low, q if visits > 0 else np.float32(np.inf))
        high = max(high, q if visits > 0 else np.float32(-np.inf))
    mixed = tree.nodes[b, node, RAW_VALUE]
    if most > 0:
        total = tree.nodes[b, node, NODE_VISITS]
        mixed = (mixed * mass + (total - np.float32(1.0)) * weighted) / (mass * total)
    if unvisited > np.float32(0.0):
        low, high = min(low, mixed), max(high, mixed)
    scale = (np.float32(rule.c_visit) + most) * np.float32(rule.c_scale) / max(high - low, np.float32(1e-8))
    top = np.float32(-np.inf)
    for a in range(edges.shape[1]):
        q, visits = edges[Q, a], edges[VISITS, a]
        value = q if visits > 0 else mixed
        out[a] = edges[LOGIT, a] + scale * (value - low)
        top = max(top, out[a])
    return top, mixed


@inlined
def _choose_next(tree: SearchTree, b: int, rule: Rule) -> None:
    """Chooses the next action of each node of the path below the root: the greatest policy − visits / node_visits."""
    actions = tree.edges.shape[3]
    for k in range(1, tree.depth[b]):
        scores = tree.scratch[k * actions :]
        top, _ = improved_logits(tree, b, tree.path[b, k], rule, scores)
        for a in range(actions):
            scores[a] -= top
    for i in range(actions, tree.depth[b] * actions):
        tree.scratch[i] = exponential(tree.scratch[i])
    for k in range(1, tree.depth[b]):
        node, scores, total = tree.path[b, k], tree.scratch[k * actions :], np.float32(0.0)
        for a in range(actions):
            total += scores[a]
        best, chosen, node_visits = np.float32(-np.inf), 0, tree.nodes[b, node, NODE_VISITS]
        for a in range(actions):
            score = scores[a] * node_visits - tree.edges[b, node, VISITS, a] * total
            if score > best:
                best, chosen = score, a
        tree.choice[b, node] = chosen


@inlined
def root_gumbel_action(tree: SearchTree, b: int, considered: int, rule: Rule) -> int:
    """The best by gumbel + logits + σ(completed q) among the legal actions with the considered number of visits."""
    improved_logits(tree, b, 0, rule, tree.scratch)
    edges, best, chosen = tree.edges[b, 0], -np.inf, -1
    for a in range(edges.shape[1]):
        score = tree.gumbel[b, a] + tree.scratch[a]
        if edges[VISITS, a] == considered and edges[PRIOR, a] > 0.0 and (score > best or chosen < 0):
            best, chosen = score, a
    return chosen


@inlined
def back_up(
    tree: SearchTree,
    b: int,
    node: int,
    reward: np.float32,
    value: np.float32,
    logits: Floats,
    discount: np.float32,
    rule: Rule,
) -> None:
    """Adds the evaluated node at the path's end and tells every node on the path.

    Rewards and values are those of the player to move; of two players, a discount below 0 makes one's the other's.
    """
    last = tree.depth[b] - 1
    child = tree.child[b, tree.path[b, last], tree.path_action[b, last]]
    if child == 0:
        child = node
        tree.child[b, tree.path[b, last], tree.path_action[b, last]] = node
        _add_node(tree, b, node, reward, value, logits)
    else:  # the greatest depth was reached before: the same leaf counts again
        value = tree.nodes[b, child, RAW_VALUE]
        _count(tree.nodes[b, child], value)
    mover = last & (rule.players - 1)
    low, high = tree.low[b, mover], tree.high[b, mover]
    other_low, other_high = tree.low[b, 1 - mover], tree.high[b, 1 - mover]
    for k in range(last, -1, -1):
        parent, action = tree.path[b, k], tree.path_action[b, k]
        reward = tree.nodes[b, child, REWARD]
        q = reward + discount * tree.nodes[b, child, VALUE]
        value = reward + discount * value
        tree.edges[b, parent, Q, action] = q
        tree.edges[b, parent, VISITS, action] += np.float32(1.0)
        low, high = min(low, q), max(high, q)
        _count(tree.nodes[b, parent], value)
        child = parent
        if k > 0 and rule.players == 2:  # exchanged in registers: to find a player's in memory costs one player 5 %
            low, high, other_low, other_high = other_low, other_high, low, high
    tree.low[b, 0], tree.high[b, 0], tree.low[b, 1], tree.high[b, 1] = low, high, other_low, other_high
    if rule.kind == GUMBEL:
        _choose_next(tree, b, rule)


@inlined
def _count(node: Floats, value: np.float32) -> None:
    """One more value in a node's mean."""
    node[NODE_VISITS] += np.float32(1.0)
    node[VALUE] += (value - node[VALUE]) / node[NODE_VISITS]


@inlined
def _add_node(tree: SearchTree, b: int, node: int, reward: np.float32, value: np.float32, logits: Floats) -> None:
    known, edges = tree.nodes[b, node], tree.edges[b, node]
    known[REWARD], known[NODE_VISITS] = reward, np.float32(1.0)
    known[RAW_VALUE] = known[VALUE] = value
    top, total = np.float32(-np.inf), np.float32(0.0)
    for a in range(len(logits)):
        top = max(top, logits[a])
    for a in range(len(logits)):
        edges[PRIOR, a] = math.exp(logits[a] - top)
        total += edges[PRIOR, a]
    shift = top + np.float32(math.log(total))
    for a in range(len(logits)):
        edges[PRIOR, a] /= total
        edges[LOGIT, a] = logits[a] - shift
        edges[Q, a] = edges[VISITS, a] = np.float32(0.0)
        tree.child[b, node, a] = 0
    tree.choice[b, node] = _argmax(edges[PRIOR])


@compiled
def select_all(
    tree: SearchTree, simulation: int, rule: Rule, parents: NDArray[np.int64], actions: NDArray[np.int64]
) -> None:
    """One path for every root; (parent, action) at its end is what the network has to evaluate."""
    for b in range(len(parents)):
        select(tree, b, simulation, rule)
        last = tree.depth[b] - 1
        parents[b], actions[b] = tree.path[b, last], tree.path_action[b, last]


@compiled
def back_up_all(
    tree: SearchTree, simulation: int, rewards: Floats, values: Floats, logits: Floats, discount: np.float32, rule: Rule
) -> None:
    """Adds the network's answers for every root's new node."""
    for b in range(len(rewards)):
        back_up(tree, b, simulation + 1, rewards[b], values[b], logits[b], discount, rule)
