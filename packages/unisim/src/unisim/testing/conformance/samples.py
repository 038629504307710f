"""Values that no backend may accept."""

from __future__ import annotations

import math

import torch

from unisim.contract import SimBackend
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload
from unisim.testing.conformance.base import ConformanceBase

__all__ = ["invalid_payloads", "unphysical_values"]


def invalid_payloads(suite: ConformanceBase, backend: SimBackend) -> dict[str, ResetPayload]:
    """Returns payloads of row 1, by what is wrong with their state."""
    qpos, qvel = suite.state(backend, 1)
    wrong: dict[str, ResetPayload] = {}

    def add(
        what: str,
        *,
        qpos: torch.Tensor | None = None,
        qvel: torch.Tensor | None = None,
        ctrl: torch.Tensor | None = None,
    ) -> None:
        wrong[what] = suite.payload(backend, [1], qpos=qpos, qvel=qvel, ctrl=ctrl)

    for value in (math.nan, math.inf):
        if qpos.shape[1]:
            add(f"a qpos of {value}", qpos=_with(qpos, -1, value))
        if qvel.shape[1]:
            add(f"a qvel of {value}", qvel=_with(qvel, 0, value))
        if backend.model_layout.nu:
            ctrl = torch.zeros(1, backend.model_layout.nu, device=qpos.device)
            add(f"a ctrl of {value}", ctrl=_with(ctrl, 0, value))
    add("a column too many", qvel=torch.zeros(1, qvel.shape[1] + 1, device=qvel.device))
    add("a row too many", qvel=torch.zeros(2, qvel.shape[1], device=qvel.device))
    add("float64", qvel=qvel.double())
    for joint in backend.model_layout.joints:
        if joint.kind in ("free", "ball"):
            stop = joint.qpos_start + joint.qpos_dim
            long = qpos.clone()
            long[:, stop - 4 : stop] = 1.0
            add("a quaternion of norm 2", qpos=long)
    ids = torch.tensor([1], device=qpos.device)
    wrong["row ids of int32"] = ResetPayload(ids.int())
    wrong["a row that does not exist"] = ResetPayload(ids + backend.num_envs)
    return wrong


def _with(values: torch.Tensor, column: int, value: float) -> torch.Tensor:
    changed = values.clone()
    changed[0, column] = value
    return changed


def unphysical_values(layout: ModelLayout, name: str) -> dict[str, torch.Tensor]:
    """Returns values (1, *shape) of a model field that must be refused, by what is wrong with them."""
    nominal = layout.fields[name].nominal_tensor().unsqueeze(0)
    if not nominal.numel():
        return {}
    first = (0,) * nominal.ndim
    bad: dict[str, torch.Tensor] = {}
    for value in (math.nan, math.inf):
        bad[f"{name} of {value}"] = nominal.clone()
        bad[f"{name} of {value}"][first] = value
    negative = ("body_mass", "geom_friction", "geom_size", "dof_armature", "dof_damping", "dof_frictionloss")
    if name in negative:
        bad[f"a negative {name}"] = -nominal - 1.0
    if name == "body_mass":
        bad["a mass of 0"] = nominal * 0.0
    if name == "body_inertia":
        bad["an inertia against the triangle inequality"] = nominal * torch.tensor([10.0, 1.0, 1.0])
        bad["a negative inertia"] = -nominal
    if name == "body_iquat":
        bad["a quaternion of norm 2"] = nominal * 2.0
    if name == "actuator_forcerange":
        bad["a range upside down"] = torch.tensor([1.0, -1.0]).expand(nominal.shape).clone()
    return bad
