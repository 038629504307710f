"""What becomes of an action: the targets of joints, as the description of the environment tells them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from unilab_core import ActionDescription, EnvDescription, TermDescription

__all__ = ["TargetLaw", "UnknownTargetError", "quantity_of", "target_law", "term_of"]

_Limits = tuple[float | None, float | None]


class UnknownTargetError(ValueError):
    """The description doesn't tell what becomes of an action; says of which, and why."""


@dataclass(frozen=True)
class TargetLaw:
    """target = clip(action x scale + offset, low, high), column by column.

    Attributes:
        scale: (A,) float32, in units of the target.
        offset: (A,) float32, as all others in units of the target: rad, m, rad/s, m/s, or the control of a motor.
        low: (A,) float32; -inf where there is no limit.
        high: (A,) float32; inf where there is no limit.
    """

    scale: torch.Tensor
    offset: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __call__(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns targets (B, A) of actions (B, A), as the environment's action terms compute them."""
        return torch.clamp(torch.addcmul(self.offset, actions, self.scale), self.low, self.high)


def target_law(description: EnvDescription) -> TargetLaw:
    """Returns how the environment makes targets of joints from actions.

    It is known of the terms whose class says that it is affine, and of no other, whatever its settings are.
    A setting by joint is looked up by its pattern, `"default"` is the joint's default position, and what a setting
    leaves out is the actuator's range or the default of the term. Which of these it was the bounds tell, that the
    environment has worked out from what is in force: bounds = (clip - offset) / scale.

    Raises:
        UnknownTargetError: A column's term isn't described, isn't one that is known to be affine in the action, or its
            settings don't tell what is in force.
    """
    columns = [_column(action, description) for action in description.actions]
    scales, offsets, lows, highs = zip(*columns, strict=True)
    return TargetLaw(
        *(torch.tensor(values, dtype=torch.float32) for values in (scales, offsets, lows, highs))
    )


def term_of(action: ActionDescription, description: EnvDescription) -> TermDescription | None:
    """Returns the term that a column of the action belongs to; None where no term names it."""
    terms = description.terms.get("actions", ())
    return next((term for term in terms if action.label in term.columns), None)


def quantity_of(action: ActionDescription, description: EnvDescription) -> str | None:
    """Returns what the target of a column is: `"position"`, `"velocity"` or `"effort"`; None where nobody said."""
    term = term_of(action, description)
    actuator = next((item for item in description.actuators if item.name == action.actuator), None)
    if (
        term is not None and "stiffness" in term.settings
    ):  # a controller of its own, in front of a plain motor
        return "position"
    if actuator is None or actuator.kp is None or actuator.kd is None:
        return None
    return "position" if actuator.kp else "velocity" if actuator.kd else "effort"


def _column(action: ActionDescription, description: EnvDescription) -> tuple[float, float, float, float]:
    """Returns scale, offset, lowest and highest target of one column."""
    term = term_of(action, description)
    if term is None:
        raise UnknownTargetError(f"no action term of the environment describes the column {action.label!r}")
    if not term.is_affine:
        raise UnknownTargetError(
            f"the action term {term.name!r} is a {term.func}, which does not say that its target is the action times a "
            "number plus a number (`is_affine`, in the class itself: what is derived from one may do anything); make "
            "the targets from the exported actions as the term does"
        )
    settings, joint = term.settings, action.label.removeprefix(f"{term.name}:")
    if not {"scale", "offset", "clip"} <= settings.keys():
        missing = sorted({"scale", "offset", "clip"} - settings.keys())
        raise UnknownTargetError(
            f"the description of the action term {term.name!r} ({term.func}) has no {' and no '.join(missing)}, so its "
            "target is not known"
        )
    scales = list(_by_joint(settings["scale"], joint, (1.0,)))
    offsets = list(_offsets(settings["offset"], joint, _default_position(action, description)))
    clips = list(_by_joint(settings["clip"], joint, tuple(_ranges(action, joint, term, description))))
    fitting = {
        (scale, offset, low, high)
        for scale, offset, clip in itertools.product(scales, offsets, clips)
        for low, high in [_open(clip)]
        if scale and _agrees(_open(action.bounds), scale, offset, low, high)
    }
    if len(fitting) != 1:
        raise UnknownTargetError(
            f"the action term {term.name!r} ({term.func}) says of {joint!r} a scale in {scales}, an offset in "
            f"{offsets} and a clip in {clips}, of which {len(fitting)} agree with the bounds {action.bounds} of its "
            "action, expected one; name every joint in its settings, or let the description of the environment say so"
        )
    return fitting.pop()


def _by_joint(values: Any, joint: str, others: tuple[Any, ...]) -> Iterator[Any]:  # noqa: ANN401
    """Yields what a setting may be for a joint: the one value, that of the joint's pattern, or one of `others`."""
    if isinstance(values, Mapping):
        found = [value for pattern, value in values.items() if re.fullmatch(pattern, joint)]
        yield from found or others
    elif values is None:
        yield from others
    else:
        yield values


def _offsets(value: Any, joint: str, default: float | None) -> Iterator[float]:  # noqa: ANN401
    """Yields what an offset may be; a joint that a mapping leaves out keeps its default position, or 0."""
    defaults = () if default is None else (default,)
    if value == "default":
        yield from defaults
    else:
        yield from _by_joint(value, joint, tuple(dict.fromkeys((*defaults, 0.0))))


def _default_position(action: ActionDescription, description: EnvDescription) -> float | None:
    joint = next((item for item in description.joints if item.name == action.joint), None)
    return joint.default_pos[0] if joint is not None and joint.kind in ("hinge", "slide") else None


def _ranges(
    action: ActionDescription, joint: str, term: TermDescription, description: EnvDescription
) -> Iterator[_Limits]:
    """Yields what targets may be clipped to where no setting says it: the actuator's range, an effort, nothing."""
    actuator = next((item for item in description.actuators if item.name == action.actuator), None)
    if actuator is not None and actuator.ctrl_range is not None:
        yield actuator.ctrl_range
    for limit in _by_joint(term.settings.get("effort_limit"), joint, ()):
        yield -limit, limit
    yield None, None


def _open(limits: _Limits) -> tuple[float, float]:
    low, high = limits
    return -math.inf if low is None else low, math.inf if high is None else high


def _agrees(bounds: tuple[float, float], scale: float, offset: float, low: float, high: float) -> bool:
    """Whether the bounds of an action, which are rounded to float32 in each operation, lead to these of the target."""
    for bound, expected in zip(
        bounds, sorted(((low - offset) / scale, (high - offset) / scale)), strict=True
    ):
        if not math.isfinite(expected):
            if bound != expected:
                return False
            continue
        largest = max(abs(offset), abs(expected * scale + offset)) / abs(scale)
        if not abs(bound - expected) <= 1e-6 * max(abs(expected), largest):
            return False
    return True
