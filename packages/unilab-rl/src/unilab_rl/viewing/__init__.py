"""Turns what an environment renders into films."""
