"""Joints driven by DC motors whose torque falls with speed: a loop that is closed in every physics substep."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import field_validator

from unilab_core.errors import ConfigError
from unilab_managers.mdp.actions.joint_actions import (
    AffineJointTerm,
    JointActionCfg,
    JointActionTerm,
    PerJoint,
    PositionJointTerm,
)
from unilab_managers.mdp.actions.joint_names import by_joint
from unisim.model_layout import find

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = [
    "DcMotorActionCfg",
    "DcMotorEffortActionCfg",
    "DcMotorPositionActionCfg",
    "dc_motor_effort",
]

_CURVE = ("saturation_effort", "velocity_limit", "effort_limit")


def dc_motor_effort(
    asked: torch.Tensor,
    velocity: torch.Tensor,
    saturation_effort: torch.Tensor,
    velocity_limit: torch.Tensor,
    effort_limit: torch.Tensor,
) -> torch.Tensor:
    """Returns the effort that DC motors give, of what they are asked for: it is clipped between two lines.

    With the supply at its full voltage, either way round, a motor's effort falls linearly with its speed v, from
    +-saturation_effort at rest to 0 at +-velocity_limit, where the voltage that it induces equals the supply's (torque
    k i, supply R i + k v, no inductance); its driver bounds the current, and so the effort:

        highest = clip(saturation_effort * (+1 - v / velocity_limit), -effort_limit, +effort_limit)
        lowest = clip(saturation_effort * (-1 - v / velocity_limit), -effort_limit, +effort_limit)

    Driving is weakened by speed, braking is not; beyond velocity_limit the motor can but brake.

    Args:
        asked: (..., J) N m or N.
        velocity: (..., J) rad/s or m/s.
        saturation_effort: (J,) effort at rest under the full supply, N m or N, positive.
        velocity_limit: (J,) speed without load under the full supply, rad/s or m/s, positive.
        effort_limit: (J,) largest effort at any speed, N m or N, positive.

    Returns:
        (..., J) N m or N, fresh.
    """
    lost = velocity * (saturation_effort / velocity_limit)
    highest = torch.clamp(saturation_effort - lost, -effort_limit, effort_limit)
    lowest = torch.clamp(-saturation_effort - lost, -effort_limit, effort_limit)
    return torch.clamp(asked, lowest, highest)


class DcMotorActionCfg(JointActionCfg):
    """Base of actions on joints that are driven by DC motors; the actuators of the model must be plain motors.

    Efforts and speeds are those of the joint, behind the gear. The effort is computed anew in every physics substep,
    from the state at its beginning; on a backend whose state lives in host memory each substep then moves a control and
    a read. Force ranges of the model hold besides; `mdp.randomize_motor_strength` scales what comes out.
    """

    saturation_effort: PerJoint
    """Effort at rest under the full supply, N m or N; one, or by joint (each must be named)."""
    velocity_limit: PerJoint
    """Speed without load under the full supply, rad/s or m/s; one, or by joint (each must be named)."""
    effort_limit: PerJoint
    """Largest effort at any speed, N m or N; one, or by joint (each must be named)."""

    @field_validator("saturation_effort", "velocity_limit", "effort_limit")
    @classmethod
    def _positive(cls, value: PerJoint) -> PerJoint:
        for number in value.values() if isinstance(value, Mapping) else [value]:
            if number <= 0.0:
                raise ValueError(f"{number} is not positive")
        return value


class DcMotorEffortActionCfg(DcMotorActionCfg):
    """Asks DC motors for an effort, N m or N: action x scale + offset. `clip` None: what the motor gives at most."""

    is_affine: ClassVar[bool] = True

    offset: PerJoint = 0.0
    """One offset, or by joint (others keep 0)."""

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return _EffortTerm(self, env, name, self.offset)


class DcMotorPositionActionCfg(DcMotorActionCfg):
    """Lets DC motors follow a position, m or rad, by effort = stiffness (target - reading) - damping velocity.

    The target is action x scale + offset as in `JointPositionActionCfg`, also where encoders read wrong. `clip` None:
    any target.
    """

    is_affine: ClassVar[bool] = True

    stiffness: PerJoint
    """N m/rad or N/m; one, or by joint (each must be named)."""
    damping: PerJoint
    """N m s/rad or N s/m; one, or by joint (each must be named)."""
    offset: Literal["default"] | PerJoint = "default"
    """`"default"`: the joint's default position, so that an action of 0 holds the default pose; one number for all; or
    by joint (others keep their default position)."""

    @field_validator("stiffness", "damping")
    @classmethod
    def _not_negative(cls, value: PerJoint) -> PerJoint:
        for number in value.values() if isinstance(value, Mapping) else [value]:
            if number < 0.0:
                raise ValueError(f"{number} is negative")
        return value

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return _PositionTerm(self, env, name, {} if self.offset == "default" else self.offset)


class _DcMotorTerm(AffineJointTerm):
    """Targets that hold for a control step, and the effort that follows from them in each substep."""

    follows: ClassVar[bool] = True
    _cfg: DcMotorActionCfg

    def __init__(self, cfg: DcMotorActionCfg, env: TorchEnv, name: str, offset: PerJoint) -> None:
        """Resolves names and settings.

        Raises:
            ConfigError: A name matches no driven joint, a setting makes no sense or leaves a joint out, or an actuator
                is no motor, or takes less than the effort limit.
        """
        super().__init__(cfg, env, name, offset)
        self._saturation, self._fastest, self._limit = (self._of_each(field, env) for field in _CURVE)
        self._per_control = self._efforts_per_control(env)
        self._check_ranges()
        self._now = torch.zeros(env.num_envs, len(self.labels), device=env.device)
        """Targets of this step; rewritten by the next."""

    def _of_each(self, field: str, env: TorchEnv) -> torch.Tensor:
        """Returns (dim,) float32: a setting that every joint must have."""
        given = getattr(self._cfg, field)
        values = by_joint(given, self.labels, [math.nan] * len(self.labels), f"{self._owner}: {field}")
        missing = [name for name, value in zip(self.labels, values, strict=True) if math.isnan(value)]
        if missing:
            raise ConfigError(f"{self._owner}: {field} {dict(given)} leaves out the joints {missing}")
        return torch.tensor(values, dtype=torch.float32, device=env.device)

    def _efforts_per_control(self, env: TorchEnv) -> torch.Tensor:
        """Returns (dim,) effort of the joint per unit of control, of the model as it was compiled.

        Raises:
            ConfigError: An actuator's force is not gain x control.
        """
        model, entity = env.model_layout, self._joints.entity.name
        gains = model.fields["actuator_gainprm"].nominal_tensor()[:, 0].tolist()
        by_name = {actuator.joint: (actuator, gains[i]) for i, actuator in enumerate(model.actuators)}
        factors = []
        for label in self.labels:
            actuator, gain = by_name[find(model.joints, f"{entity}/{label}", "joint").name]
            if actuator.kind != "motor" or gain * actuator.gear == 0.0:
                raise ConfigError(
                    f"{self._owner}: actuator {actuator.name!r} is no motor, whose force is a gain times the control: "
                    f"it is of kind {actuator.kind!r}, gain {gain:g}, gear {actuator.gear:g}; give the model a motor, "
                    "for a DC motor's controller is part of the action"
                )
            factors.append(gain * actuator.gear)
        return torch.tensor(factors, dtype=torch.float32, device=env.device)

    def _check_ranges(self) -> None:
        """Checks that the engine does not clip the control before the motor does."""
        needed = (self._limit / self._per_control).abs().tolist()
        lows, highs = (bound.tolist() for bound in self._joints.ranges)
        for label, control, low, high in zip(self.labels, needed, lows, highs, strict=True):
            if min(-low, high) < control * (1.0 - 1e-6):
                raise ConfigError(
                    f"{self._owner}: effort_limit of joint {label!r} is a control of +-{control:g}, and its actuator "
                    f"takes {low:g} to {high:g}; lower the limit or widen the model's control range"
                )

    def _unnamed_bounds(self) -> list[tuple[float, float]]:
        return [(-math.inf, math.inf)] * len(self.labels)

    @property
    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """By column, as of `JointActionTerm`, and the three numbers of the motor."""
        curve = (self._saturation, self._fastest, self._limit)
        columns = zip(*(values.tolist() for values in curve), strict=True)
        return tuple(
            {**plain, **dict(zip(_CURVE, numbers, strict=True))}
            for plain, numbers in zip(super().settings, columns, strict=True)
        )

    @abstractmethod
    def _asked(self, targets: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
        """Returns the efforts, (N, dim), that the controller asks of the motors at the state now."""

    def _driven(self, targets: torch.Tensor) -> torch.Tensor:
        velocity = self._joints.entity.data.joint_vel[:, self._joints.joint_ids]
        asked = self._asked(targets, velocity)
        effort = dc_motor_effort(asked, velocity, self._saturation, self._fastest, self._limit)
        return effort.div_(self._per_control)

    def accept(self, actions: torch.Tensor) -> None:
        """Keeps the targets of the step, and lets it pass for the actions that are on their way."""
        self._now.copy_(self._arriving(actions))
        super().accept(actions)

    def follow(self) -> torch.Tensor:
        """Returns the controls of the next substep; see `ActionTerm`."""
        return self._driven(self._now)


class _EffortTerm(_DcMotorTerm):
    """Targets are the efforts asked for."""

    def _unnamed_bounds(self) -> list[tuple[float, float]]:
        none = [math.inf] * len(self.labels)
        most = by_joint(self._cfg.effort_limit, self.labels, none, f"{self._owner}: effort_limit")
        return [(-limit, limit) for limit in most]

    def _asked(self, targets: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
        return targets


class _PositionTerm(_DcMotorTerm, PositionJointTerm):
    """Targets are positions as the encoders read them."""

    def __init__(self, cfg: DcMotorPositionActionCfg, env: TorchEnv, name: str, offset: PerJoint) -> None:
        """Resolves names and settings; see `_DcMotorTerm`."""
        super().__init__(cfg, env, name, offset)
        self._stiffness, self._damping = (self._of_each(field, env) for field in ("stiffness", "damping"))

    def _asked(self, targets: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
        missing = targets - self._joints.entity.data.joint_pos[:, self._joints.joint_ids]
        bias = self._encoder_bias()
        if bias is not None:
            missing -= bias
        return missing.mul_(self._stiffness).addcmul_(velocity, self._damping, value=-1.0)

    @property
    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """By column, as of `JointActionTerm`, the three numbers of the motor, and the gains of its controller."""
        columns = zip(self._stiffness.tolist(), self._damping.tolist(), strict=True)
        return tuple(
            {**plain, "stiffness": stiffness, "damping": damping}
            for plain, (stiffness, damping) in zip(super().settings, columns, strict=True)
        )
