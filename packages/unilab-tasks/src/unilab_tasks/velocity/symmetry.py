"""The mirror image of a four-legged robot: left and right change places.

Velocities, positions and forces are vectors, whose y changes sign; angular velocities are axial vectors, whose x and z
do. Hips turn about x and so change sign, thighs and calves turn about y and do not. Diagonal pairs of feet take turns,
so that the mirror image of the gait is half a turn ahead of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unilab_core import EnvDescription
    from unilab_rl import Mirror

__all__ = ["quadruped_mirror"]

_VECTOR = {"x": 1.0, "y": -1.0, "z": 1.0}
_AXIAL = {"x": -1.0, "y": 1.0, "z": -1.0}
_SIGNS = {
    "base_lin_vel": _VECTOR,
    "base_ang_vel": _AXIAL,
    "projected_gravity": _VECTOR,
    "command": {"lin_vel_x": 1.0, "lin_vel_y": -1.0, "ang_vel_z": -1.0},
    "gait_clock": {"sin": -1.0, "cos": -1.0},
}
"""By term and column; all other terms have one column per leg's joint or foot."""
_LEG = re.compile(r"\b(F|R)(R|L)_(hip)?")
_LABEL = re.compile(r"(?P<term>\w+)\[(?P<column>[^\]]+)\](\[t-\d+\])?")
"""Frames of a history are mirrored one by one."""


def quadruped_mirror(description: EnvDescription) -> Mirror:
    """Returns what becomes of every observation and action column of a velocity task with `quad12`.

    Raises:
        ConfigError: A column is none of those that the task has.
    """
    from unilab_core import ConfigError
    from unilab_rl.contracts.mirror import Mirror, Reflection

    def image(label: str) -> tuple[str, float]:
        leg = _LEG.search(label)
        if leg is not None:
            start, side = leg.start(2), leg[2]
            other = label[:start] + ("L" if side == "R" else "R") + label[start + 1 :]
            return other, -1.0 if leg[3] else 1.0
        match = _LABEL.fullmatch(label)
        sign = _SIGNS.get(match["term"], {}).get(match["column"]) if match else None
        if sign is None:
            raise ConfigError(
                f"quadruped_mirror: nothing is known of column {label!r}; expected those of a leg or of one of "
                f"{sorted(_SIGNS)}"
            )
        return label, sign

    return Mirror(
        observations={
            group: Reflection.of_labels(labels, image) for group, labels in description.observations.items()
        },
        actions=Reflection.of_labels([column.label for column in description.actions], image),
    )
