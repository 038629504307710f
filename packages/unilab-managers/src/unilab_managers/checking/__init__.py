"""Checks of a task: what `unilab check` and `unilab_managers.testing.check_task` look for."""
