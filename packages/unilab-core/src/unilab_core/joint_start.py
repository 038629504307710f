"""What the resets of an entity's joints start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from unilab_core.entity_cfg import Index
from unisim.model_layout import JointLayout, ModelLayout

__all__ = ["JointStart", "JointStarts"]


class JointStart(NamedTuple):
    """Of J' joints, the same for every row; to be read only."""

    pos: torch.Tensor
    """(J',) m or rad: default positions."""
    vel: torch.Tensor
    """(J',) m/s or rad/s: default velocities."""
    low: torch.Tensor
    """(J',) m or rad: lowest positions; -inf of unlimited joints."""
    high: torch.Tensor
    """(J',) m or rad: highest positions; inf of unlimited joints."""


class JointStarts:
    """Those of the joints of an entity, and of the ones that terms choose in every reset.

    Attributes:
        all: Of all J joints.
        limits: (J, 2) m or rad: lower and upper limits, infinite for unlimited joints.
    """

    def __init__(self, model: ModelLayout, joints: Sequence[JointLayout], device: torch.device) -> None:
        """Looks up slide and hinge joints in the model, in their order."""
        starts_q = [model.default_qpos[joint.qpos_start] for joint in joints]
        starts_v = [model.default_qvel[joint.qvel_start] for joint in joints]
        limits = [joint.limits for joint in joints]
        self.limits = torch.tensor(limits, dtype=torch.float32, device=device).reshape(-1, 2)
        low, high = self.limits.unbind(dim=1)
        pos, vel = (torch.tensor(of, dtype=torch.float32, device=device) for of in (starts_q, starts_v))
        self.all = JointStart(pos, vel, low.clone(), high.clone())
        self._kept: dict[tuple[int | None, int | None, int | None], JointStart] = {}

    def of(self, joint_ids: Index) -> JointStart:
        """Returns that of chosen joints: of a slice the same tensors every time.

        Raises:
            IndexError: There is no such joint.
        """
        if isinstance(joint_ids, torch.Tensor):
            return JointStart(*(values[joint_ids] for values in self.all))
        key = joint_ids.start, joint_ids.stop, joint_ids.step
        start = self._kept.get(key)
        if start is None:
            with torch.inference_mode(False):  # a view of that mode would be of no use outside of it
                start = self._kept[key] = JointStart(*(values[joint_ids] for values in self.all))
        return start
