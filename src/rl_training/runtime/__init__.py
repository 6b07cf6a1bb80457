"""Training: schedules and controls, the loop, collectors, runs and one trainer per algorithm."""
