"""The data between the collector and the learner."""
