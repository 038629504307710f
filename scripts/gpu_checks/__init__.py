"""What scripts/gpu_check.py checks, and how it runs the checks."""
