"""Actions on joints: control = clip(action x scale + offset), which the joint's actuator follows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator

from unilab_core.errors import ConfigError
from unilab_managers.buffers import DelayLags, FrameRing
from unilab_managers.managers.action_manager import ActionTerm, ActionTermCfg
from unilab_managers.mdp.actions.joint_names import by_joint, driven_joints

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "AffineJointTerm",
    "JointActionCfg",
    "JointActionTerm",
    "JointEffortActionCfg",
    "JointPositionActionCfg",
    "JointRelativePositionActionCfg",
    "JointVelocityActionCfg",
    "PerJoint",
    "PositionJointTerm",
]

PerJoint = float | dict[str, float]
"""One number for all joints of a term, or by full-match regular expression of their names."""
Bounds = tuple[float, float]
Steps = Annotated[int, Field(ge=0)]


class JointActionCfg(ActionTermCfg):
    """Base of actions with one column per joint, each sent to the one actuator that drives the joint.

    First the delay, then scale, offset, clip. Settings by joint are full-match regular expressions of the names of the
    term's joints; each must match one, and no joint may be matched twice.
    """

    joint_names: tuple[str, ...] | None = None
    """Full-match regular expressions; None means all joints of the entity that have an actuator."""
    preserve_order: bool = False
    """Whether columns come in the order of `joint_names` instead of the model's."""
    scale: PerJoint = 1.0
    """One factor, or by joint (others keep 1)."""
    clip: Bounds | dict[str, Bounds] | None = None
    """Bounds of the control, one pair or by joint (others, and None: the actuator's range; none if it is unlimited)."""
    delay_min_lag: Steps = 0
    """Fewest control steps that an action takes to arrive; each row draws its own number at its reset."""
    delay_max_lag: Steps = 0
    """Most control steps that an action takes to arrive; until the first does, actions are 0."""

    @model_validator(mode="after")
    def _ordered(self) -> JointActionCfg:
        for clip in self.clip.values() if isinstance(self.clip, Mapping) else [self.clip]:
            if clip is not None and clip[0] > clip[1]:
                raise ValueError(f"clip {clip} is inverted; expected (low, high)")
        if self.delay_min_lag > self.delay_max_lag:
            raise ValueError(
                f"delay_min_lag {self.delay_min_lag} is above delay_max_lag {self.delay_max_lag}"
            )
        return self


class JointPositionActionCfg(JointActionCfg):
    """Sets targets of position actuators, m or rad, as their joints' encoders read.

    Where `mdp.randomize_encoder_bias` makes an encoder read b too much, the joint is driven to target - b, behind the
    clip: the drive knows the joint by its encoder only.
    """

    is_affine: ClassVar[bool] = True

    offset: Literal["default"] | PerJoint = "default"
    """`"default"`: the joint's default position, so that an action of 0 holds the default pose; one number for all; or
    by joint (others keep their default position)."""

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return PositionJointTerm(self, env, name, {} if self.offset == "default" else self.offset)


class JointRelativePositionActionCfg(JointActionCfg):
    """Sets targets of position actuators, m or rad, relative to where the joint is: position + action x scale.

    What an encoder reads wrong cancels out: it is in the reading that the action is added to, and in the target.
    """

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return _RelativePositionTerm(self, env, name)


class JointVelocityActionCfg(JointActionCfg):
    """Sets targets of velocity actuators, m/s or rad/s."""

    is_affine: ClassVar[bool] = True

    offset: PerJoint = 0.0
    """One offset, or by joint (others keep 0)."""

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return AffineJointTerm(self, env, name, self.offset)


class JointEffortActionCfg(JointActionCfg):
    """Drives motors: the control is a force or torque in units of the actuator's gain."""

    is_affine: ClassVar[bool] = True

    offset: PerJoint = 0.0
    """One offset, or by joint (others keep 0)."""

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return AffineJointTerm(self, env, name, self.offset)


class JointActionTerm(ActionTerm):
    """Raw actions, perhaps late, to the controls of joints."""

    def __init__(self, cfg: JointActionCfg, env: TorchEnv, name: str) -> None:
        """Resolves names and settings.

        Raises:
            ConfigError: A name matches no driven joint (with the nearest), or a setting makes no sense.
        """
        self._cfg = cfg
        self._owner = f"actions term {name!r}"
        self._joints = driven_joints(
            env, cfg.entity, cfg.joint_names, preserve_order=cfg.preserve_order, owner=self._owner
        )
        self._scale = self._resolve("scale", cfg.scale, [1.0] * len(self.labels), env)
        if bool((self._scale == 0).any()):
            raise ConfigError(f"{self._owner}: a scale of 0 makes its action column dead")
        ranges = self._unnamed_bounds()
        bounds = (
            ranges if cfg.clip is None else by_joint(cfg.clip, self.labels, ranges, f"{self._owner}: clip")
        )
        self._low, self._high = torch.tensor(bounds, device=env.device).unbind(dim=1)
        self._is_limited = any(math.isfinite(bound) for pair in bounds for bound in pair)
        self._delay = _Delay(cfg, env, len(self.labels)) if cfg.delay_max_lag else None

    def _unnamed_bounds(self) -> list[Bounds]:
        """What targets of joints are clipped to that no setting names: the range of the actuator."""
        lows, highs = (bound.tolist() for bound in self._joints.ranges)
        return list(zip(lows, highs, strict=True))

    def _resolve(self, field: str, values: PerJoint, others: Sequence[float], env: TorchEnv) -> torch.Tensor:
        """Returns (dim,) float32: a setting of every column."""
        found = by_joint(values, self.labels, others, f"{self._owner}: {field}")
        return torch.tensor(found, dtype=torch.float32, device=env.device)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the joints."""
        return self._joints.names

    @property
    def control_ids(self) -> slice | torch.Tensor:
        """The control columns of the joints' actuators."""
        return self._joints.control_ids

    @property
    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """By column: `scale`, `offset`, `clip` (None where it is unlimited) and `delay` (fewest and most steps)."""
        scales, lows, highs = self._scale.tolist(), self._low.tolist(), self._high.tolist()
        delay = (self._cfg.delay_min_lag, self._cfg.delay_max_lag)
        return tuple(
            {"scale": scale, "offset": offset, "clip": (_bound(low), _bound(high)), "delay": delay}
            for scale, offset, low, high in zip(scales, self._offsets(), lows, highs, strict=True)
        )

    @abstractmethod
    def _offsets(self) -> Sequence[float | str]:
        """What `settings` says about the offset of each column."""

    @abstractmethod
    def _targets(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the targets, (N, dim) fresh, of raw actions (N, dim), before the clip."""

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the controls; see `ActionTerm`."""
        return self._driven(self._arriving(actions))

    def _driven(self, targets: torch.Tensor) -> torch.Tensor:
        """Returns the controls of clipped targets, (N, dim): here these are the same."""
        return targets

    def _arriving(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the clipped targets, (N, dim) fresh, that arrive in a step in which `actions` are sent."""
        if self._delay is not None:
            actions = self._delay.arriving(actions)
        targets = self._targets(actions)
        if self._is_limited:
            targets.clamp_(self._low, self._high)
        return targets

    def accept(self, actions: torch.Tensor) -> None:
        """Lets a step pass for the actions that are on their way."""
        if self._delay is not None:
            self._delay.push(actions)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Drops what was on its way in the rows, and draws how late their actions are from now on."""
        if self._delay is not None:
            self._delay.reset(env_ids)


class AffineJointTerm(JointActionTerm):
    """action x scale + offset."""

    def __init__(self, cfg: JointActionCfg, env: TorchEnv, name: str, offset: PerJoint) -> None:
        """Resolves names and settings."""
        super().__init__(cfg, env, name)
        self._offset = self._resolve("offset", offset, self._unnamed_offsets(), env)

    def _unnamed_offsets(self) -> list[float]:
        """The offset of joints that no setting names."""
        return [0.0] * len(self.labels)

    @property
    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The raw actions that reach the bounds of the control."""
        ends = torch.stack([(low_high - self._offset) / self._scale for low_high in (self._low, self._high)])
        return ends.amin(dim=0), ends.amax(dim=0)

    def _offsets(self) -> Sequence[float | str]:
        offsets: list[float | str] = self._offset.tolist()
        return offsets

    def _targets(self, actions: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self._offset, actions, self._scale)


class PositionJointTerm(AffineJointTerm):
    """action x scale + offset, which is the default position of joints that nothing else is said of."""

    def __init__(self, cfg: JointActionCfg, env: TorchEnv, name: str, offset: PerJoint) -> None:
        """Resolves names and settings."""
        super().__init__(cfg, env, name, offset)
        # Looked into in every step, for events are made after actions.
        self._encoders = cast("ManagerBasedRlEnv", env).encoders

    def _unnamed_offsets(self) -> list[float]:
        joints = self._joints
        default: list[float] = joints.entity.data.default_joint_pos[0, joints.joint_ids].tolist()
        return default

    def _encoder_bias(self) -> torch.Tensor | None:
        """Returns what the encoders of the joints read too much, (N, dim); None where they are exact."""
        bias = self._encoders.bias(self._cfg.entity)
        return None if bias is None else bias[:, self._joints.joint_ids]

    def _driven(self, targets: torch.Tensor) -> torch.Tensor:
        bias = self._encoder_bias()
        return targets if bias is None else targets - bias


class _RelativePositionTerm(JointActionTerm):
    """Joint position + action x scale."""

    @property
    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Infinite: where the control reaches its bounds depends on where the joint is."""
        ends = torch.full_like(self._scale, math.inf)
        return -ends, ends

    def _offsets(self) -> Sequence[float | str]:
        return ["joint position"] * len(self.labels)

    def _targets(self, actions: torch.Tensor) -> torch.Tensor:
        position = self._joints.entity.data.joint_pos[:, self._joints.joint_ids]
        return torch.addcmul(position, actions, self._scale)


class _Delay:
    """Actions on their way, each row's as late as it drew at its reset."""

    def __init__(self, cfg: JointActionCfg, env: TorchEnv, dim: int) -> None:
        """Begins with no action on its way."""
        self._lags = DelayLags(env.num_envs, cfg.delay_min_lag, cfg.delay_max_lag, rng=env.rng, hold_prob=1.0)
        self._ring = FrameRing(env.num_envs, cfg.delay_max_lag, dim, env.device)
        self._at_once = (self._lags.values == 0).unsqueeze(1)
        # The ring holds the actions before the current one, so a lag of 1 is its newest.
        self._back = (self._lags.values - 1).clamp_(min=0)

    def arriving(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the actions, (N, dim), that arrive in a step in which `actions` are sent; changes nothing."""
        if self._lags.is_fixed:
            return self._ring.oldest()
        earlier = self._ring.at(self._back)
        return torch.where(self._at_once, actions, earlier) if self._lags.min_lag == 0 else earlier

    def push(self, actions: torch.Tensor) -> None:
        """Sends actions, (N, dim)."""
        self._ring.push(actions)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Draws lags of rows, (K,) int64, and lets actions of 0 be on their way in them."""
        self._lags.reset(env_ids)
        lags = self._lags.values[env_ids]
        self._at_once[env_ids] = (lags == 0).unsqueeze(1)
        self._back[env_ids] = (lags - 1).clamp_(min=0)
        self._ring.fill(env_ids, torch.zeros(env_ids.numel(), self._ring.dim, device=env_ids.device))


def _bound(value: float) -> float | None:
    return value if math.isfinite(value) else None
