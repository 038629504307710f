"""Registers the tasks of this package; imports neither torch nor an engine, so that listing tasks is quick."""

from unilab_core import TaskSpec, register_task

__all__ = ["register"]

_LEARNERS = {"ppo": "my_robot.learners:balance_ppo"}


def register() -> None:
    """Adds every task; called through the entry point `unilab.tasks` in pyproject.toml."""
    register_task(
        TaskSpec(
            name="my-robot-balance",
            env_cfg="my_robot.env_cfg:balance",
            learners=_LEARNERS,
            summary="Stay upright on two wheels",
        )
    )
    register_task(
        TaskSpec(
            name="my-robot-balance-pushed",
            env_cfg="my_robot.env_cfg:balance_pushed",
            learners=_LEARNERS,
            summary="Stay upright on two wheels while being pushed",
        )
    )
