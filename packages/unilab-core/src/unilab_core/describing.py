"""Fills in what can be said of any environment: joints, actuators, and the ledger of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from unilab_core.description import (
    ActionDescription,
    ActuatorDescription,
    JointDescription,
    Limits,
    PacketDescription,
)
from unilab_core.io import BackendIO
from unilab_core.recording import Recorded
from unisim.contract import Declared
from unisim.model_layout import ActuatorLayout, ModelLayout

__all__ = ["describe_actions", "describe_actuators", "describe_joints", "describe_ledger"]

_PARAMETERS = 10
"""Of the gain and of the bias of an actuator, in the engine's own order."""


def describe_actions(
    labels: Sequence[str], bounds: tuple[torch.Tensor, torch.Tensor]
) -> tuple[ActionDescription, ...]:
    """Returns the columns of an action by their labels and (A,) lowest and highest values."""
    pairs = zip(*(bound.tolist() for bound in bounds), strict=True)
    return tuple(
        ActionDescription(label, bounds=(_finite(low), _finite(high)))
        for label, (low, high) in zip(labels, pairs, strict=True)
    )


def describe_joints(model: ModelLayout) -> tuple[JointDescription, ...]:
    """Returns the joints in the model's order."""
    return tuple(
        JointDescription(
            name=joint.name,
            kind=joint.kind,
            default_pos=tuple(model.default_qpos[joint.qpos_start : joint.qpos_start + joint.qpos_dim]),
            limits=_bounded(joint.limits),
        )
        for joint in model.joints
    )


def describe_actuators(model: ModelLayout) -> tuple[ActuatorDescription, ...]:
    """Returns the actuators in the order of their control columns, gains as far as the model tells."""
    return tuple(_actuator(model, i, actuator) for i, actuator in enumerate(model.actuators))


def _actuator(model: ModelLayout, i: int, actuator: ActuatorLayout) -> ActuatorDescription:
    ctrl_range = _bounded(actuator.ctrl_range)
    if not {"actuator_gainprm", "actuator_biasprm"} <= model.fields.keys():
        return ActuatorDescription(actuator.name, actuator.joint, ctrl_range)
    gain, bias = (
        model.fields[name].nominal[_PARAMETERS * i : _PARAMETERS * (i + 1)]
        for name in ("actuator_gainprm", "actuator_biasprm")
    )
    # 0.0 -: a motor's zero shall not be -0.0.
    return ActuatorDescription(
        actuator.name, actuator.joint, ctrl_range, gain=gain[0], kp=0.0 - bias[1], kd=0.0 - bias[2]
    )


def _bounded(limits: tuple[float, float]) -> Limits | None:
    low, high = map(_finite, limits)
    return None if low is None and high is None else (low, high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def describe_ledger(
    io: BackendIO,
    model: ModelLayout,
    num_envs: int,
    declared: Declared,
    recorded: Recorded,
    num_groups: int,
    decimation: int,
    followers: Sequence[str],
) -> tuple[PacketDescription, ...]:
    """Returns what one step moves, as the terms were seen to act when they were tried.

    Args:
        io: What is read.
        model: The model.
        num_envs: N.
        declared: What is written beyond state.
        recorded: What resets and steps wrote, and the timers.
        num_groups: Number of observation groups.
        decimation: Substeps of a step.
        followers: Whose control follows the state from substep to substep.
    """
    if not io.serves_host:
        return ()
    pushes = len(declared.wrench_bodies)
    widths = {"qpos": model.nq, "qvel": model.nv}
    widths |= {name: math.prod(model.fields[name].shape) for name in declared.model_fields}
    reset = sum(widths[part] for part in ("qpos", "qvel", *recorded.reset_fields))
    before = 2  # the actions and their control
    # Reward ... bad rows, any done.
    after = 1 + num_groups + bool(pushes) + bool(followers) + 2 + len(recorded.timers)
    times, who = (decimation, f"each substep, for {', '.join(followers)}") if followers else (1, "")
    packets = [
        PacketDescription("control", "step", times, times * 4 * num_envs * (model.nu + 6 * pushes), who=who),
        PacketDescription("read", "step", times, times * 4 * num_envs * io.width, who=who),
        PacketDescription("verdict", "step", 2, before + after),
        *(PacketDescription("host", "step", 2, size, who=label) for label, size in io.host_bytes.items()),
        PacketDescription("reset", "reset", 1, 0, 4 * reset + 8),
        PacketDescription("selected_read", "reset", 1, 0, 4 * io.width),
        *(
            PacketDescription("host", "reset", 2, size, who=label)
            for label, size in io.host_bytes.items()
            if label in recorded.observed_hosts
        ),
        # No transfer of its own: the next step's first verdict also judges the observations of the reset.
        PacketDescription("verdict", "reset", 0, num_groups),
    ]
    if recorded.step_parts:
        written = sum(widths[part] for part in recorded.step_parts)
        packets += [
            PacketDescription("write", "write", 1, 0, 4 * written + 8),
            PacketDescription("selected_read", "write", 1, 0, 4 * io.width),
        ]
    return tuple(packets)
