"""Collectors, learners, evaluators and whole runs in other processes, on Ray. Only `connection` imports `ray`."""
