"""Actions on actuators: control = clip(action x scale + offset)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pydantic import model_validator

from unilab_core.entity_cfg import match_names
from unilab_core.errors import ConfigError, UnknownNameError
from unilab_managers.managers.action_manager import ActionTerm, ActionTermCfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["JointActionCfg", "JointActionTerm", "JointEffortActionCfg"]

PerActuator = float | dict[str, float]


class JointActionCfg(ActionTermCfg):
    """Base of actions with one column per actuator: scale, then offset, then clip."""

    actuator_names: tuple[str, ...] | None = None
    """Full-match regular expressions; None means all actuators of the entity."""
    preserve_order: bool = False
    """Whether columns come in the order of `actuator_names` instead of the model's."""
    scale: PerActuator = 1.0
    """One factor, or by actuator name or regular expression (others keep 1)."""
    offset: PerActuator = 0.0
    """One offset, or by actuator name or regular expression (others keep 0)."""
    clip: tuple[float, float] | None = None
    """Bounds of the control; None: those of the actuator."""

    @model_validator(mode="after")
    def _ordered_clip(self) -> JointActionCfg:
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip {self.clip} is inverted; expected (low, high)")
        return self

    def make(self, env: TorchEnv, name: str) -> JointActionTerm:
        """Returns the term; see `ActionTermCfg`."""
        return JointActionTerm(self, env, name)


class JointEffortActionCfg(JointActionCfg):
    """Drives motors: the control is a force or torque in units of the actuator's gain."""


class JointActionTerm(ActionTerm):
    """Affine map from raw actions to the controls of some actuators."""

    def __init__(self, cfg: JointActionCfg, env: TorchEnv, name: str) -> None:
        """Resolves names and settings.

        Raises:
            ConfigError: A name matches no actuator; the message lists the nearest.
        """
        owner = f"actions term {name!r}"
        try:
            entity = env.scene[cfg.entity]
            ids = match_names(
                cfg.actuator_names,
                entity.actuator_names,
                preserve_order=cfg.preserve_order,
                owner="actuator_names",
            )
        except (UnknownNameError, ValueError) as error:
            raise ConfigError(f"{owner}: {error}") from error
        if not ids:
            raise ConfigError(
                f"{owner}: actuator_names {cfg.actuator_names} selects no actuator of {cfg.entity!r}"
            )
        self._labels = tuple(entity.actuator_names[i] for i in ids)
        self._control_ids = entity.control_ids(self._labels)
        self._scale = _per_actuator(cfg.scale, 1.0, self._labels, f"{owner}: scale", env.device)
        self._offset = _per_actuator(cfg.offset, 0.0, self._labels, f"{owner}: offset", env.device)
        if bool((self._scale == 0).any()):
            raise ConfigError(f"{owner}: a scale of 0 makes its action column dead")
        low, high = entity.control_ranges(self._labels)
        if cfg.clip is not None:
            low, high = torch.full_like(low, cfg.clip[0]), torch.full_like(high, cfg.clip[1])
        self._low, self._high = low, high

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the actuators."""
        return self._labels

    @property
    def control_ids(self) -> slice | torch.Tensor:
        """The control columns of the actuators."""
        return self._control_ids

    @property
    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The raw actions that reach the bounds of the control."""
        ends = torch.stack(
            [(self._low - self._offset) / self._scale, (self._high - self._offset) / self._scale]
        )
        return ends.amin(dim=0), ends.amax(dim=0)

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the controls; see `ActionTerm`."""
        return torch.clamp(actions * self._scale + self._offset, self._low, self._high)


def _per_actuator(
    values: PerActuator, other: float, names: tuple[str, ...], owner: str, device: torch.device
) -> torch.Tensor:
    if isinstance(values, float):
        return torch.full((len(names),), values, device=device)
    out = torch.full((len(names),), other, device=device)
    for pattern, value in values.items():
        try:
            out[match_names([pattern], names, preserve_order=False, owner=owner)] = value
        except ValueError as error:
            raise ConfigError(str(error)) from error
    return out
