"""Registers the task; imports neither torch nor an engine."""

from unilab_core import TaskSpec, register_task


def register() -> None:
    """Adds the task; called through the entry point `unilab.tasks`."""
    register_task(
        TaskSpec(
            name="springs-settle",
            env_cfg="springs.task:settle",
            learners={"ppo": "springs.task:settle_ppo"},
            summary="Bring two masses on springs to rest",
        )
    )
