"""Pose and velocity of an entity's root, in the world and in its own frame."""

from __future__ import annotations

from collections.abc import Callable

import torch

from unilab_core.kept_reads import KeptReads, Source
from unilab_core.reads import BodyHandle
from unilab_core.rotation import quat_yaw, turn, turn_inverse
from unilab_core.staging import Part
from unisim.model_layout import EntityLayout, ModelLayout, find

__all__ = ["RootState", "free_joint"]


class RootState:
    """What terms read of the root: the columns of its free joint, or what its body has where it is not free.

    Attributes:
        joint: First columns of the free joint in `qpos` and in `qvel`; None of a root that is not free.
    """

    def __init__(
        self,
        joint: tuple[int, int] | None,
        columns: Callable[[Part, str, slice], torch.Tensor],
        body: BodyHandle,
        kept: KeptReads,
        down: torch.Tensor,
    ) -> None:
        """Remembers where values come from.

        Args:
            joint: See the attribute.
            columns: Returns columns of the state as terms are shown it, given also what they are called.
            body: The root body.
            kept: Keeps what is derived.
            down: (N, 3) the direction of gravity in the world.
        """
        self.joint = joint
        self._columns = columns
        self._body = body
        self._kept = kept
        self._down = down
        self._source: Source = "columns" if joint is None else "state"

    def _pose(self, name: str, start: int, stop: int) -> torch.Tensor:
        assert self.joint is not None
        first = self.joint[0]
        return self._columns("qpos", name, slice(first + start, first + stop))

    def _velocity(self, name: str, start: int, stop: int) -> torch.Tensor:
        assert self.joint is not None
        first = self.joint[1]
        return self._columns("qvel", name, slice(first + start, first + stop))

    @property
    def pos_w(self) -> torch.Tensor:
        """(N, 3) m."""
        return self._body.pos_w[:, 0] if self.joint is None else self._pose("pos_w", 0, 3)

    @property
    def quat_w(self) -> torch.Tensor:
        """(N, 4) wxyz."""
        return self._body.quat_w[:, 0] if self.joint is None else self._pose("quat_w", 3, 7)

    def _turn(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns `quat_w` in parts, (N, 1) and (N, 3): views that last where the root is free."""
        if self.joint is None:
            w, xyz = self.quat_w.split_with_sizes([1, 3], dim=-1)
            return w, xyz
        return self._pose("quat_w: w", 3, 4), self._pose("quat_w: xyz", 4, 7)

    @property
    def lin_vel_w(self) -> torch.Tensor:
        """(N, 3) m/s."""
        return self._body.lin_vel_w[:, 0] if self.joint is None else self._velocity("lin_vel_w", 0, 3)

    @property
    def lin_vel_b(self) -> torch.Tensor:
        """(N, 3) m/s."""
        return self._kept.get(
            "root_lin_vel_b", lambda: turn_inverse(*self._turn(), self.lin_vel_w), self._source
        )

    @property
    def ang_vel_b(self) -> torch.Tensor:
        """(N, 3) rad/s."""
        if self.joint is None:
            return turn_inverse(*self._turn(), self._body.ang_vel_w[:, 0])
        # The engine keeps a free joint's linear velocity in the world and its angular velocity in the body.
        return self._velocity("ang_vel_b", 3, 6)

    @property
    def ang_vel_w(self) -> torch.Tensor:
        """(N, 3) rad/s."""
        return self._kept.get("root_ang_vel_w", lambda: turn(*self._turn(), self.ang_vel_b), self._source)

    @property
    def gravity_b(self) -> torch.Tensor:
        """(N, 3) of length 1."""
        return self._kept.get("gravity", lambda: turn_inverse(*self._turn(), self._down), "pose")

    @property
    def heading_w(self) -> torch.Tensor:
        """(N,) rad."""
        return self._kept.get("heading_w", lambda: quat_yaw(self.quat_w), "pose")


def free_joint(layout: EntityLayout, model: ModelLayout) -> tuple[int, int] | None:
    """Returns the first columns of the root's free joint in `qpos` and in `qvel`; None if the root is not free."""
    if layout.root_joint is None:
        return None
    joint = find(model.joints, layout.root_joint, "joint")
    return joint.qpos_start, joint.qvel_start
