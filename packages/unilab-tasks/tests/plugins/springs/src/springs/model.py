"""The model of the package's own engine: what its entities are built from, and how stiff they are."""

from dataclasses import dataclass

from unisim import ModelLayout
from unisim.testing import make_layout


@dataclass(frozen=True)
class Springs:
    """Masses of 1 kg, each on a spring that pulls it to 0."""

    layout: ModelLayout
    stiffness: float
    """N/m."""


def two_masses(stiffness: float = 40.0) -> Springs:
    """Returns two driven masses, `near` and `far`, and a sensor that shows where they are."""
    joints = ("robot/near", "robot/far")
    sensors = {"place": (2, "position"), "rate": (2, "velocity"), "push": (1, "acceleration")}
    return Springs(make_layout(joints=joints, actuated=joints, sensors=sensors), stiffness)
