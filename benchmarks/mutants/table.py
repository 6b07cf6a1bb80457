"""All planted bugs, by family."""

from __future__ import annotations

from benchmarks.mutants import dreamer, edges, planners, policy_gradients
from benchmarks.mutants.mutant import Mutant

FAMILIES: dict[str, list[Mutant]] = {
    "policy gradients": policy_gradients.MUTANTS,
    "planners": planners.MUTANTS,
    "Dreamer": dreamer.MUTANTS,
    "edges": edges.MUTANTS,
}
