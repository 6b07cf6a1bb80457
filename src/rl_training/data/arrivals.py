"""Windows of replayed rows as arrivals: each observation with what led to it."""

from __future__ import annotations

from collections.abc import Mapping

from rl_training.data.trees import Tree, tree_map


def arrivals(window: Mapping[str, Tree]) -> dict[str, Tree]:
    """A window of L + 1 rows as L observations, each with what led to it: the action, reward and termination before.

    The first of them counts as a beginning, since nothing remembers what was before it. `is_last` is also True where
    an episode was cut off: what comes next is another one.
    """
    goes_on = ~window["is_first"][1:]
    is_first = window["is_first"][1:].clone()
    is_first[0] = True
    is_last = window["is_last"][1:].clone()
    is_last[:-1] |= window["is_first"][2:]
    return {
        "obs": tree_map(lambda leaf: leaf[1:], window["obs"]),
        "previous_actions": window["actions"][:-1],
        "rewards": window["rewards"][:-1] * goes_on,
        "terminal": window["terminated"][:-1] & goes_on,
        "is_first": is_first,
        "is_last": is_last,
    }
