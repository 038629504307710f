"""Trained policies as files that need neither this framework nor Torch."""
