"""A two-wheeled robot and the tasks of keeping it upright."""

from my_robot.register import register

__all__ = ["register"]
