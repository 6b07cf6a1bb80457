"""One batched tree search, parametrised by its selection rule. The compiled parts (numba) load when a planner plans."""
