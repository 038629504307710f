"""What a learner sees of an environment, and what the runner sees of a learner."""
