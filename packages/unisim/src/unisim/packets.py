"""What is read: which columns a packet has, and where each quantity lies in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unisim.errors import nearest
from unisim.model_layout import ModelLayout, find

__all__ = [
    "ACCELERATION_FIELDS",
    "BODY_FIELDS",
    "STATE_FIELDS",
    "Block",
    "HostBridgeSpec",
    "ReadLayout",
    "spec_of",
]

STATE_FIELDS = ("qpos", "qvel", "ctrl")
"""What a payload can write."""

ACCELERATION_FIELDS = ("qacc", "actuator_force")
"""What follows from state and control; described for the last integrated substep, as by acceleration-stage sensors."""

BODY_FIELDS = {"pos_w": (0, 3), "quat_w": (3, 7), "lin_vel_w": (7, 10), "ang_vel_w": (10, 13)}
"""Columns of one body or site inside its block."""

_BODY_WIDTH = 13


@dataclass(frozen=True)
class HostBridgeSpec:
    """Everything one plan reads, fixed before it is compiled.

    Attributes:
        state: State fields, of `STATE_FIELDS`.
        acceleration: Joint accelerations and actuator forces of the last substep, of `ACCELERATION_FIELDS`.
        sensors: Sensor names.
        bodies: Body names; position, orientation and velocities of the body frame in the world.
        sites: Site names; the same four quantities.
        substep_sensors: Sensors whose values after each substep of a control step are read, oldest first.
        device: Torch device of the packets as its users see them.
        decimation: Physics substeps per control step.
    """

    state: tuple[str, ...] = STATE_FIELDS
    sensors: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    substep_sensors: tuple[str, ...] = ()
    device: str = "cpu"
    decimation: int = 1
    acceleration: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """One quantity's columns in a packet."""

    key: str
    """`"qpos"`, `"qvel"`, `"ctrl"`, `"qacc"`, `"actuator_force"`, `"sensor:<name>"`, `"substep:<sensor>"`,
    `"body:<name>"` or `"site:<name>"`."""
    start: int
    stop: int


_KINDS = ("sensor", "substep", "body", "site")


def spec_of(keys: Iterable[str], *, device: str = "cpu", decimation: int = 1) -> HostBridgeSpec:
    """Returns the spec that reads exactly `keys`, which are those of `Block`.

    Raises:
        KeyError: A key of no known kind; the message lists the nearest.
    """
    names: dict[str, list[str]] = {kind: [] for kind in ("state", "acceleration", *_KINDS)}
    for key in keys:
        kind, separator, name = key.partition(":")
        if key in STATE_FIELDS:
            names["state"].append(key)
        elif key in ACCELERATION_FIELDS:
            names["acceleration"].append(key)
        elif separator and kind in _KINDS:
            names[kind].append(name)
        else:
            plain = (*STATE_FIELDS, *ACCELERATION_FIELDS)
            valid = [*plain, *(f"{known}:{name or '<name>'}" for known in _KINDS)]
            raise KeyError(f"unknown key {key!r}; {nearest(key, valid)}")
    return HostBridgeSpec(
        state=tuple(names["state"]),
        acceleration=tuple(names["acceleration"]),
        sensors=tuple(names["sensor"]),
        substep_sensors=tuple(names["substep"]),
        bodies=tuple(names["body"]),
        sites=tuple(names["site"]),
        device=device,
        decimation=decimation,
    )


class ReadLayout:
    """Column layout of the read packet: state, accelerations, sensors, substep history, bodies, sites, each once.

    Attributes:
        blocks: In column order.
        width: W, the number of columns.
    """

    def __init__(self, spec: HostBridgeSpec, model: ModelLayout) -> None:
        """Lays out `spec` on `model`.

        Raises:
            KeyError: A name that the model does not have; the message lists the nearest.
            ValueError: A name given twice, or `decimation` < 1.
        """
        if spec.decimation < 1:
            raise ValueError(f"HostBridgeSpec.decimation is {spec.decimation}, expected at least 1")
        state = {"qpos": model.nq, "qvel": model.nv, "ctrl": model.nu}
        acceleration = {"qacc": model.nv, "actuator_force": model.nu}
        entries: list[tuple[str, int]] = []
        for kind, given, widths in (
            ("state", spec.state, state),
            ("acceleration", spec.acceleration, acceleration),
        ):
            for name in given:
                if name not in widths:
                    raise KeyError(f"unknown {kind} field {name!r}; {nearest(name, widths)}")
                entries.append((name, widths[name]))
        entries += [(f"sensor:{n}", find(model.sensors, n, "sensor").dim) for n in spec.sensors]
        entries += [
            (f"substep:{n}", spec.decimation * find(model.sensors, n, "sensor").dim)
            for n in spec.substep_sensors
        ]
        for kind, names, valid in (("body", spec.bodies, model.bodies), ("site", spec.sites, model.sites)):
            for name in names:
                if name not in valid:
                    raise KeyError(f"unknown {kind} {name!r}; {nearest(name, valid)}")
                entries.append((f"{kind}:{name}", _BODY_WIDTH))
        self.spec = spec
        self.blocks = tuple(_place(entries))
        self.width = self.blocks[-1].stop if self.blocks else 0
        self._by_key = {block.key: block for block in self.blocks}

    def __contains__(self, key: object) -> bool:
        """Whether the packet carries `key`."""
        return key in self._by_key

    def columns(self, key: str) -> slice:
        """Returns the columns of one quantity.

        Raises:
            KeyError: The packet does not carry it.
        """
        block = self._by_key.get(key)
        if block is None:
            raise KeyError(f"the read packet has no {key!r}; {nearest(key, self._by_key)}")
        return slice(block.start, block.stop)


def _place(entries: Iterable[tuple[str, int]]) -> Iterable[Block]:
    start, seen = 0, set()
    for key, width in entries:
        if key in seen:
            raise ValueError(f"{key!r} is declared twice in one read packet")
        seen.add(key)
        yield Block(key, start, start + width)
        start += width
