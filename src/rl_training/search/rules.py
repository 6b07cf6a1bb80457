"""How a search chooses actions: the two families of rules and their constants, as compiled code reads them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.kernels.tools.arrays import Floats
from rl_training.ops.search import considered_visits

PUCT, GUMBEL = 0, 1
FIRST_PLAY_MEAN, FIRST_PLAY_WORST = 0, 1


class Rule(NamedTuple):
    """`kind` decides which of the constants matter. Make one with `puct` or `gumbel`."""

    kind: int
    pb_c_init: float = 1.25
    pb_c_base: float = 19652.0
    first_play: int = FIRST_PLAY_MEAN
    c_visit: float = 50.0
    c_scale: float = 0.1
    max_considered: int = 16
    players: int = 1  # 2: they move by turns, and what one wins the other loses


def puct(*, pb_c_init: float = 1.25, pb_c_base: float = 19652.0, first_play: str = "mean", players: int = 1) -> Rule:
    """MuZero's rule. An unvisited action counts for the `mean` of what is known of its node, or as the `worst`.

    The mean explores by the prior when there are few simulations. MuZero's pseudocode and mctx take the worst, which
    goes on with the first action that looks good. EfficientZero's code has a third rule: the mean of the visited
    actions alone at the root, and below it with the parent's mean in place of the node's own value.
    """
    kinds = {"mean": FIRST_PLAY_MEAN, "worst": FIRST_PLAY_WORST}
    return Rule(PUCT, pb_c_init=pb_c_init, pb_c_base=pb_c_base, first_play=kinds[first_play], players=players)


def gumbel(*, c_visit: float = 50.0, c_scale: float = 0.1, max_considered: int = 16, players: int = 1) -> Rule:
    """Gumbel MuZero's: sequential halving over the Gumbel-top-m at the root, the improved policy below it."""
    return Rule(GUMBEL, c_visit=c_visit, c_scale=c_scale, max_considered=max_considered, players=players)


@lru_cache
def exploration_weights(count: int, rule: Rule) -> Floats:
    """√N · (c_init + ln((N + c_base + 1) / c_base)) for N < count."""
    visits = np.arange(count)
    logs = np.log((visits + rule.pb_c_base + 1.0) / rule.pb_c_base)
    return (np.sqrt(visits) * (rule.pb_c_init + logs)).astype(np.float32)


@lru_cache
def considered_table(actions: int, num_simulations: int, rule: Rule) -> NDArray[np.int32]:
    """`considered_visits` by the number of actions that are considered."""
    widest = min(actions, rule.max_considered, num_simulations)
    return np.stack([considered_visits(width, num_simulations) for width in range(widest + 1)])
