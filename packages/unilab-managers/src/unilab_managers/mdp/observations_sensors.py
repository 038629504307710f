"""The observation term of sensors, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.labels import columns
from unisim.model_layout import CONTACT_WIDTHS, SensorLayout, find
from unisim.scene import BuiltinSensorCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["sensor"]

_ROBOT = SceneEntityCfg()
_PARTS = {3: ("x", "y", "z"), 4: ("w", "x", "y", "z")}
_UNITS = {
    "accelerometer": "m/s^2",
    "force": "N",
    "frameangvel": "rad/s",
    "framelinvel": "m/s",
    "framepos": "m",
    "gyro": "rad/s",
    "subtreecom": "m",
    "subtreelinvel": "m/s",
    "torque": "N m",
    "touch": "N",
    "velocimeter": "m/s",
}
_OF_JOINTS = {
    "actuatorfrc": ("N", "N m"),
    "jointpos": ("m", "rad"),
    "jointvel": ("m/s", "rad/s"),
}
"""Units where the joint slides, and where it turns."""
_CONTACT_UNITS = {"force": "N", "torque": "N m", "dist": "m", "pos": "m"}


def _layout(env: ManagerBasedRlEnv, name: str, asset_cfg: SceneEntityCfg) -> SensorLayout:
    """Returns the entity's own sensor of that name, else that of the scene."""
    sensors = env.model_layout.sensors
    own = f"{asset_cfg.name}/{name}"
    return find(sensors, own if any(item.name == own for item in sensors) else name, "sensor")


def _fields(layout: SensorLayout) -> Iterator[tuple[str, int]]:
    """Yields the quantities of a contact sensor and how many columns each has, slot after slot."""
    assert layout.contact is not None
    for _ in range(layout.contact.num):
        for field in layout.contact.data:
            yield field, CONTACT_WIDTHS[field]


def _columns(
    env: ManagerBasedRlEnv,
    sensor_names: tuple[str, ...],
    asset_cfg: SceneEntityCfg = _ROBOT,
    **params: object,
) -> tuple[str, ...]:
    found: list[str] = []
    for name in sensor_names:
        layout = _layout(env, name, asset_cfg)
        if layout.contact is None:
            found += _numbered(name, layout.dim)
            continue
        slots = layout.contact.num
        for i, (field, width) in enumerate(_fields(layout)):
            slot = f".{i // len(layout.contact.data)}" if slots > 1 else ""
            found += _numbered(f"{name}{slot}.{field}", width)
    return tuple(found)


def _numbered(name: str, dim: int) -> list[str]:
    if dim == 1:
        return [name]
    return [f"{name}.{part}" for part in _PARTS.get(dim, tuple(map(str, range(dim))))]


def _units(
    env: ManagerBasedRlEnv,
    sensor_names: tuple[str, ...],
    asset_cfg: SceneEntityCfg = _ROBOT,
    unit: str | None = None,
    **params: object,
) -> tuple[str, ...]:
    found: list[str] = []
    for name in sensor_names:
        layout = _layout(env, name, asset_cfg)
        if unit is not None or layout.contact is None:
            found += [_unit_of(env, layout.name) if unit is None else unit] * layout.dim
            continue
        for field, width in _fields(layout):
            found += [_CONTACT_UNITS.get(field, "")] * width
    return tuple(found)


def _unit_of(env: ManagerBasedRlEnv, name: str) -> str:
    """Returns the unit of a sensor that the scene adds; `""` of others, whose kind nobody tells."""
    for cfg in env.cfg.scene.sensors:
        if cfg.name == name and isinstance(cfg, BuiltinSensorCfg):
            if cfg.kind not in _OF_JOINTS:
                return _UNITS.get(cfg.kind, "")
            model = env.model_layout
            joint = (
                find(model.actuators, cfg.target, "actuator").joint
                if cfg.kind == "actuatorfrc"
                else cfg.target
            )
            slides = joint is None or find(model.joints, joint, "joint").kind == "slide"
            return _OF_JOINTS[cfg.kind][0 if slides else 1]
    return ""


@columns(unit=_units, names=_columns)
def sensor(
    env: ManagerBasedRlEnv,
    sensor_names: tuple[str, ...],
    asset_cfg: SceneEntityCfg = _ROBOT,
    unit: str | None = None,
) -> torch.Tensor:
    """Returns what sensors show, one after the other, (N, sum of their dim), each in its own frame.

    A sensor that is attached to a site shows its vectors along the axes of that site; of contact sensors all that they
    report, slot after slot (see `ContactHandle`).

    Args:
        env: The environment.
        sensor_names: Sensors of the entity, without its prefix, or of the scene.
        asset_cfg: The entity.
        unit: Of all columns; None: what the kind of a sensor says that the scene adds, else none.
    """
    parts = [env.scene.sensor(_layout(env, name, asset_cfg).name) for name in sensor_names]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
