"""Runs learners: the loop, its interruption, whole sessions and evaluation."""
