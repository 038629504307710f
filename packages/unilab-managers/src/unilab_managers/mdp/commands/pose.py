"""Pose commands for one body of an entity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.errors import ConfigError
from unilab_core.rotation import quat_apply_inverse, quat_conjugate, quat_mul
from unilab_managers.managers.command_manager import CommandTerm, CommandTermCfg
from unilab_managers.mdp._sampling import quat_from_euler
from unilab_managers.mdp.commands.ranges import Range, UniformRanges

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["UniformPoseCommand", "UniformPoseCommandCfg", "pose_reached"]

_AXES = ("pos_x", "pos_y", "pos_z", "roll", "pitch", "yaw")


class UniformPoseCommandCfg(CommandTermCfg):
    """A position and an orientation for a body to reach, drawn uniformly."""

    body_name: str
    """The body that is to reach the pose; a full-match regular expression that selects one."""
    frame: Literal["root", "world"] = "root"
    """What the command is relative to: the root body's frame, with which it moves, or the world."""
    pos_x: Range
    """m."""
    pos_y: Range
    """m."""
    pos_z: Range
    """m."""
    roll: Range = (0.0, 0.0)
    """Turn about the frame's x axis, which comes first, rad."""
    pitch: Range = (0.0, 0.0)
    """Turn about the frame's y axis, which comes second, rad."""
    yaw: Range = (0.0, 0.0)
    """Turn about the frame's z axis, which comes last, rad."""

    def make(self, env: TorchEnv, name: str) -> UniformPoseCommand:
        """Returns the term; see `CommandTermCfg`."""
        return UniformPoseCommand(self, env, name)


class UniformPoseCommand(CommandTerm):
    """Holds (N, 7): position in m and orientation wxyz, in the frame that the config says."""

    metric_names: ClassVar[tuple[str, ...]] = ("position_error", "orientation_error")
    cfg: UniformPoseCommandCfg

    def __init__(self, cfg: UniformPoseCommandCfg, env: TorchEnv, name: str) -> None:
        """Finds the body and allocates the commands; see `CommandTerm`.

        Raises:
            ConfigError: `body_name` selects several bodies.
            ValueError: It selects none; the message lists the nearest.
        """
        super().__init__(cfg, env, name)
        n, device = env.num_envs, env.device
        self._body = SceneEntityCfg(name=cfg.entity, body_names=(cfg.body_name,))
        found = self.entity.element_ids(self._body, "body")
        names = [self.entity.body_names[i] for i in torch.arange(len(self.entity.body_names))[found]]
        if len(names) != 1:
            raise ConfigError(f"{self.label}: body_name {cfg.body_name!r} selects {names}, expected one body")
        self._ranges = UniformRanges({axis: getattr(cfg, axis) for axis in _AXES}, device, self.label)
        self._command = torch.zeros(n, 7, device=device)
        self._command[:, 3] = 1.0

    @property
    def command(self) -> torch.Tensor:
        """(N, 7) current command: a view that the next step rewrites."""
        return self._command

    @property
    def labels(self) -> tuple[str, ...]:
        """The components' names."""
        return ("pos_x", "pos_y", "pos_z", "quat_w", "quat_x", "quat_y", "quat_z")

    @property
    def ranges(self) -> UniformRanges:
        """What commands are drawn from now, by name: three positions and three angles."""
        return self._ranges

    def set_ranges(self, **ranges: tuple[float, float]) -> None:
        """Replaces ranges that later commands are drawn from; the config and the current commands stay.

        Raises:
            UnknownNameError: No such range; the message lists the nearest.
            ValueError: Not two finite numbers, or inverted; nothing has changed.
        """
        self._ranges.set(ranges)

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        drawn = self._ranges.draw(self._env.rng, self._env.num_envs)
        pose = torch.cat([drawn[:, :3], quat_from_euler(drawn[:, 3:])], dim=1)
        self._command.copy_(torch.where(reset_mask[:, None], pose, self._command))

    def errors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns how far the body is from the command now, (N,) m, and by which angle turned from it, (N,) rad."""
        data = self.entity.data
        body = data.bodies(self._body)
        pos, quat = body.pos_w[:, 0], body.quat_w[:, 0]
        if self.cfg.frame == "root":
            root = data.root_quat_w
            pos, quat = quat_apply_inverse(root, pos - data.root_pos_w), quat_mul(quat_conjugate(root), quat)
        turn = quat_mul(quat_conjugate(self._command[:, 3:]), quat)
        # An arc cosine would lose half of the digits near 0.
        angle = 2.0 * torch.atan2(turn[:, 1:].norm(dim=1), turn[:, 0].abs())
        return (self._command[:, :3] - pos).norm(dim=1), angle

    def _update_metrics(self) -> None:
        distance, angle = self.errors()
        self.metric_sums[:, 0] += distance
        self.metric_sums[:, 1] += angle


def pose_reached(
    env: ManagerBasedRlEnv,
    command_name: str,
    distance: float | None = None,
    angle: float | None = None,
) -> torch.Tensor:
    """Returns where a body has reached its commanded pose, (N,) bool: for `resample_when`, a reward or a termination.

    Args:
        env: The environment.
        command_name: A `UniformPoseCommand`.
        distance: Within how many m of the position; None: wherever it is.
        angle: Within how many rad of the orientation; None: however it is turned.

    Raises:
        ValueError: Neither is given.
        ConfigError: The command is no pose.
    """
    if distance is None and angle is None:
        raise ValueError("neither distance nor angle is given")
    term = env.command_manager.get_term(command_name)
    if not isinstance(term, UniformPoseCommand):
        raise ConfigError(f"{term.label} is a {type(term).__name__}, expected a UniformPoseCommand")
    bounds = (math.inf if bound is None else bound for bound in (distance, angle))
    near, aligned = (error <= bound for error, bound in zip(term.errors(), bounds, strict=True))
    return near & aligned
