"""How many contacts and constraints a row may have: as the config says, or as a model is seen to need."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch

from unisim.model_layout import ModelLayout
from unisim.scene import SimCfg

__all__ = ["Capacity", "OverflowWatch", "find_capacity"]

_LOGGER = logging.getLogger(__name__)

_ROLLOUTS, _STEPS = 12, 150
_MARGIN = 3
_LEAST_CONTACTS, _LEAST_CONSTRAINTS = 16, 64
_ROUND = 8
_SEED = 0

OVERFLOWS = {
    "NEFC": "constraints of a row: raise sim.njmax",
    "NJMAX_NNZ": "entries of a row's constraint Jacobian: raise sim.njmax",
    "BROADPHASE": "pairs of geoms that may touch: raise sim.nconmax",
    "NARROWPHASE": "contacts of all rows: raise sim.nconmax",
    "CCD": "contacts of convex shapes of all rows: raise sim.nconmax",
    "HFIELD": "contacts with a height field: use a coarser one",
    "CONTACT_MATCH": "contacts of one contact sensor: watch a smaller element",
    "NVMAX": "degrees of freedom that are awake",
    "EPA_HORIZON": "facets in a collision of convex shapes: use simpler shapes",
    "TACTILE": "contacts of a tactile sensor",
}
"""What can be too small, and what to do. A solver that stops at its limit of iterations is not among them."""


@dataclass(frozen=True)
class Capacity:
    """Room per row.

    Attributes:
        nconmax: Contacts; all rows share N times as many.
        njmax: Constraints.
    """

    nconmax: int
    njmax: int


def find_capacity(model: Any, layout: ModelLayout, sim: SimCfg) -> Capacity:  # noqa: ANN401 - a mujoco.MjModel
    """Returns what `sim` says, and for the rest three times the most that seeded falls from random poses needed.

    The rollouts are MuJoCo's own, under random controls, from the default state with free bodies turned and joints
    that have limits placed at random: a robot that lies on the ground needs the most.
    """
    if sim.nconmax is not None and sim.njmax is not None:
        return Capacity(sim.nconmax, sim.njmax)
    contacts, constraints = _most_seen(model, layout)
    return Capacity(
        sim.nconmax if sim.nconmax is not None else _room(contacts, _LEAST_CONTACTS),
        sim.njmax if sim.njmax is not None else _room(constraints, _LEAST_CONSTRAINTS),
    )


def _room(seen: int, least: int) -> int:
    return max(least, _ROUND * math.ceil(_MARGIN * seen / _ROUND))


def _most_seen(model: Any, layout: ModelLayout) -> tuple[int, int]:  # noqa: ANN401 - a mujoco.MjModel
    random = np.random.default_rng(_SEED)
    ranges = np.array([a.ctrl_range for a in layout.actuators]).reshape(-1, 2)
    low, high = np.clip(-1.0, *ranges.T), np.clip(1.0, *ranges.T)
    contacts = constraints = 0
    for rollout in range(_ROLLOUTS):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = layout.default_qpos, layout.default_qvel
        if rollout:  # the first one starts as every reset does
            for joint in layout.joints:
                _throw(data.qpos, joint.kind, joint.qpos_start, joint.limits, random)
        for _ in range(_STEPS):
            data.ctrl[:] = random.uniform(low, high)
            mujoco.mj_step(model, data)
            if not np.isfinite(data.qpos).all():
                break
            contacts, constraints = max(contacts, data.ncon), max(constraints, data.nefc)
    return contacts, constraints


def _throw(
    qpos: np.ndarray[Any, Any],
    kind: str,
    start: int,
    limits: tuple[float, float],
    random: np.random.Generator,
) -> None:
    if kind in ("free", "ball"):
        quaternion = random.normal(size=4)
        stop = start + (7 if kind == "free" else 4)
        qpos[stop - 4 : stop] = quaternion / np.linalg.norm(quaternion)
    elif np.isfinite(limits).all():
        qpos[start] = random.uniform(*limits)


class OverflowWatch:
    """Reports each kind of overflow once, without making anyone wait for a device."""

    def __init__(self, kinds: Mapping[str, int], capacity: Capacity) -> None:
        """Nothing has been reported yet.

        Args:
            kinds: Bits of the engine's word by name.
            capacity: What was reserved.
        """
        self._bits = {name: int(kinds[name]) for name in OVERFLOWS}
        self._capacity = capacity
        self._reported = 0
        self._copy: torch.Tensor | None = None
        self._copied: torch.cuda.Event | None = None

    def poll(self, words: torch.Tensor) -> None:
        """Looks at what the last call brought, and asks for the next; the host never waits.

        Args:
            words: (N,) int32, the engine's word of every row, on its device.
        """
        if words.device.type == "cpu":
            self.report(words)
            return
        if self._copy is None:
            self._copy = torch.zeros(words.shape, dtype=words.dtype, pin_memory=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        elif self._copied is not None:
            if not self._copied.query():  # type: ignore[no-untyped-call]
                return
            self.report(self._copy)
        self._copy.copy_(words, non_blocking=True)
        assert self._copied is not None
        self._copied.record()

    def report(self, words: torch.Tensor) -> None:
        """Logs the kinds that are new among (N,) words in host memory."""
        found = int(np.bitwise_or.reduce(words.numpy())) & ~self._reported
        for name, bit in self._bits.items():
            if found & bit:
                self._reported |= bit
                _LOGGER.warning(
                    "MuJoCo-Warp: row %d: too many %s (room per row: %d contacts, %d constraints; reported once)",
                    int((words & bit).nonzero()[0]),
                    OVERFLOWS[name],
                    self._capacity.nconmax,
                    self._capacity.njmax,
                )
