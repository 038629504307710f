"""A scripted environment whose description is complete, and policies that are one network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rl_support import ScriptedEnv

from unilab_core import (
    ActionDescription,
    ActuatorDescription,
    EnvDescription,
    JointDescription,
    TermDescription,
)
from unilab_rl.export.metadata import Source

SOURCE = Source(
    task="scripted",
    algorithm="ppo",
    iteration=10,
    env_steps=480,
    seed=7,
    checkpoint="model_10.pt",
    config_hash="sha256:0",
    versions={"torch": "2"},
)

# hip: target = clip(0.5 a + 0.25, -0.5, 0.75), so a in [-1.5, 1]; wheel: the control of a motor, clip(2 a, -1, 1).
_TERMS = (
    TermDescription(
        name="legs",
        func="robots.actions:JointPositionActionCfg",
        is_affine=True,
        settings={"scale": 0.5, "offset": "default", "clip": None, "delay_min_lag": 1, "delay_max_lag": 2},
        columns=("legs:hip",),
    ),
    TermDescription(
        name="drive",
        func="robots.actions:JointEffortActionCfg",
        is_affine=True,
        settings={"scale": {"wh.*": 2.0}, "offset": 0.0, "clip": (-1.0, 1.0)},
        columns=("drive:wheel",),
    ),
)

DESCRIPTION = EnvDescription(
    step_dt=0.5,
    episode_length_s=2.5,
    observations={"obs": ("count[0][t-1]", "row[0]")},
    units={"obs": ("rad", "")},
    actions=(
        ActionDescription("legs:hip", "robot/hip_servo", "robot/hip", (-1.5, 1.0)),
        ActionDescription("drive:wheel", "robot/wheel_motor", "robot/wheel", (-0.5, 0.5)),
    ),
    joints=(
        JointDescription("robot/root", "free", (0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0), None),
        JointDescription("robot/wheel", "hinge", (1.0,), None),
        JointDescription("robot/hip", "hinge", (0.25,), (-0.6, 0.8)),
    ),
    actuators=(
        ActuatorDescription("robot/wheel_motor", "robot/wheel", None, 3.0, 0.0, 0.0),
        ActuatorDescription("robot/hip_servo", "robot/hip", (-0.5, 0.75), 20.0, 20.0, 1.0),
    ),
    control=("robot/wheel_motor", "robot/hip_servo"),
    terms={
        "actions": _TERMS,
        "observations": (
            TermDescription("obs/count", "f:count", settings={"scale": 0.1}, columns=("count[0][t-1]",)),
            TermDescription("obs/row", "f:row", settings={"scale": [4.0]}, columns=("row[0]",)),
            TermDescription("critic/row", "f:row", settings={"scale": 9.0}, columns=("row[0]",)),
        ),
    },
)


def described(**changes: Any) -> EnvDescription:
    """The description with some parts replaced."""
    return replace(DESCRIPTION, **changes)


class DescribedEnv(ScriptedEnv):
    """A `ScriptedEnv` that says what its columns and actions are."""

    description = DESCRIPTION

    def describe(self) -> EnvDescription:
        return self.description


@dataclass
class NetworkPolicy:
    """A policy that is a network on the observation."""

    network: torch.nn.Module

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            actions: torch.Tensor = self.network(obs["obs"])
        return actions

    @property
    def module(self) -> torch.nn.Module:
        return self.network


def files_in(folder: Path) -> list[str]:
    """What lies below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
