"""What flows between the collector and the learner."""
