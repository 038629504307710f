"""Bridges to learners written by others."""
