"""Packing: where each column of a packet lies in the engine's arrays, worked out once per layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unisim.model_layout import ModelLayout, find
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS, ReadLayout

__all__ = ["Array", "PackProgram", "follows_from_state"]

Array = np.ndarray[Any, Any]

_FRAMES = {"body": ("xpos", "xquat"), "site": ("site_xpos", "site_xquat")}
"""The engine's positions and orientations of what has a frame; bodies' velocities serve both."""
_WIDTH = 13


def follows_from_state(keys: Iterable[str], model: ModelLayout) -> bool:
    """Whether any of a packet's keys is computed from positions and velocities, beside the state itself.

    An engine that has just integrated knows such values of one substep before only, unless it is asked for more.
    """
    for key in keys:
        kind, _, name = key.partition(":")
        if kind in _FRAMES or (
            kind == "sensor" and find(model.sensors, name, "sensor").stage != "acceleration"
        ):
            return True
    return False


class _Copy(NamedTuple):
    """Columns of a packet that stand side by side in a field of the engine too."""

    columns: slice
    field: str
    source: slice


class _Frames(NamedTuple):
    """Bodies or sites, which stand side by side in a packet."""

    columns: slice
    number: int
    pos: str
    quat: str
    elements: slice | Array
    """(F,) which of the engine's bodies or sites."""
    bodies: slice | Array
    """(F,) the bodies that they are fixed to."""
    roots: slice | Array
    """(F,) the roots of the trees of these, or one for all."""


def _index(numbers: Array) -> slice | Array:
    """Returns a slice, which makes a view, where numbers rise evenly."""
    steps = np.diff(numbers)
    if numbers.size == 1 or (steps[0] > 0 and (steps == steps[0]).all()):
        step = int(steps[0]) if steps.size else 1
        return slice(int(numbers[0]), int(numbers[-1]) + 1, step)
    return numbers


class PackProgram:
    """Writes the columns of one layout from arrays of the engine, of all rows or of some.

    Attributes:
        fields: The engine's arrays that are read; `"state"` is that of its state rows.
        histories: Sensors of which each substep is read, with their columns; not written here.
        follows_from_state: Whether a column is computed from positions and velocities, beside the state itself.
    """

    def __init__(
        self,
        layout: ReadLayout,
        model: ModelLayout,
        *,
        num_envs: int,
        state_start: Mapping[str, int],
        site_bodies: Array,
        body_roots: Array,
    ) -> None:
        """Works out what is copied from where.

        Args:
            layout: The packet.
            model: Names and sensors.
            num_envs: The most rows that are packed at once.
            state_start: First column of each of `STATE_FIELDS` in the engine's state rows.
            site_bodies: (nsite,) the body of each site.
            body_roots: (nbody,) the root of each body's tree.
        """
        self.follows_from_state = follows_from_state((block.key for block in layout.blocks), model)
        copies: list[_Copy] = []
        self.histories: list[tuple[str, slice]] = []
        for block in layout.blocks:
            kind, _, name = block.key.partition(":")
            columns = slice(block.start, block.stop)
            if kind in STATE_FIELDS:
                copies.append(_copy(columns, "state", state_start[kind]))
            elif kind in ACCELERATION_FIELDS:
                copies.append(_copy(columns, kind, 0))
            elif kind == "sensor":
                copies.append(_copy(columns, "sensordata", find(model.sensors, name, "sensor").start))
            elif kind == "substep":
                self.histories.append((name, columns))
        self._copies = tuple(_merged(copies))
        self._frames = tuple(_frames_of(layout, model, site_bodies, body_roots))
        frames = [f for each in self._frames for f in (each.pos, each.quat, "cvel", "subtree_com")]
        self.fields = tuple(dict.fromkeys([*(copy.field for copy in self._copies), *frames]))
        most = max((frames.number for frames in self._frames), default=0)
        # Kept, because new memory of this size would be mapped page by page at every step.
        self._scratch = np.empty(16 * most * num_envs)

    def pack(self, arrays: Mapping[str, Array], out: Array) -> None:
        """Writes `out`, (n, W) float32, from the `fields` of n rows."""
        for columns, field, source in self._copies:
            np.copyto(out[:, columns], arrays[field][:, source], casting="same_kind")
        for frames in self._frames:
            self._pack_frames(frames, arrays, out[:, frames.columns])

    def _pack_frames(self, frames: _Frames, arrays: Mapping[str, Array], out: Array) -> None:
        """Packs poses and velocities of frames; the engine's velocity is moved to their origin, v + w x r."""
        n, count = len(out), frames.number
        each = out.reshape(n, count, _WIDTH)  # a view
        position, spatial = arrays[frames.pos][:, frames.elements], arrays["cvel"][:, frames.bodies]
        np.copyto(each[..., 0:3], position, casting="same_kind")
        np.copyto(each[..., 3:7], arrays[frames.quat][:, frames.elements], casting="same_kind")
        np.copyto(each[..., 10:13], spatial[..., 0:3], casting="same_kind")
        # Component by component, (3, F, n): each operator runs over all rows at once. The first two components are
        # there a second time, so that the next two of each component are a slice as well.
        scratch = self._scratch[: 16 * count * n].reshape(16, count, n)
        w, arm, turned, other = scratch[0:5], scratch[5:10], scratch[10:13], scratch[13:16]
        velocity = spatial.transpose(2, 1, 0)
        np.copyto(w[0:3], velocity[0:3])
        np.copyto(w[3:5], w[0:2])
        com = arrays["subtree_com"][:, frames.roots]
        np.subtract(position.transpose(2, 1, 0), com.transpose(2, 1, 0), out=arm[0:3])
        np.copyto(arm[3:5], arm[0:2])
        np.multiply(w[1:4], arm[2:5], out=turned)
        np.multiply(w[2:5], arm[1:4], out=other)
        np.subtract(turned, other, out=turned)
        np.add(velocity[3:6], turned, out=turned)
        np.copyto(each[..., 7:10], turned.transpose(2, 1, 0), casting="same_kind")


def _copy(columns: slice, field: str, start: int) -> _Copy:
    return _Copy(columns, field, slice(start, start + columns.stop - columns.start))


def _merged(copies: Sequence[_Copy]) -> Iterable[_Copy]:
    """Joins neighbours in the packet that are neighbours in the same field of the engine."""
    open_: _Copy | None = None
    for copy in copies:
        if copy.columns.start == copy.columns.stop:
            continue
        if (
            open_ is not None
            and open_.field == copy.field
            and open_.columns.stop == copy.columns.start
            and open_.source.stop == copy.source.start
        ):
            columns = slice(open_.columns.start, copy.columns.stop)
            open_ = _copy(columns, copy.field, open_.source.start)
            continue
        if open_ is not None:
            yield open_
        open_ = copy
    if open_ is not None:
        yield open_


def _frames_of(
    layout: ReadLayout, model: ModelLayout, site_bodies: Array, body_roots: Array
) -> Iterable[_Frames]:
    """Returns the bodies and the sites of a packet; each of the two stands side by side in it."""
    for kind, names, own in (
        ("body", layout.spec.bodies, model.bodies),
        ("site", layout.spec.sites, model.sites),
    ):
        if not names:
            continue
        blocks = [layout.columns(f"{kind}:{name}") for name in names]
        elements = np.array([own.index(name) for name in names])
        bodies = elements if kind == "body" else site_bodies[elements]
        roots = body_roots[bodies]
        yield _Frames(
            slice(blocks[0].start, blocks[-1].stop),
            len(names),
            *_FRAMES[kind],
            _index(elements),
            _index(bodies),
            _index(roots[:1] if (roots == roots[0]).all() else roots),
        )
