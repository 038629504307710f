"""Event terms that randomise joints and actuators; what `unilab_managers.mdp.randomization` says holds here too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.writes import writes
from unilab_managers.mdp._model_draws import (
    Draws,
    actuators_meant,
    change_field,
    combine_drawn,
    scale_whole,
)
from unilab_managers.mdp._sampling import Distribution, Operation, Range, Sharing

if TYPE_CHECKING:
    from unilab_managers.cfg.events import EventTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "randomize_actuator_gains",
    "randomize_effort_limits",
    "randomize_joint_armature",
    "randomize_joint_damping",
    "randomize_joint_friction",
]

_ROBOT = SceneEntityCfg()
_KP, _MINUS_KP, _MINUS_KD = 0, 1, 2
"""Columns of a position actuator: of its gain, force = kp control + ..., and of its bias, ... - kp q - kd dq/dt."""


@writes("dof_armature")
def randomize_joint_armature(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    armature_range: Range,
    operation: Operation = "scale",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises the inertia that a joint's rotor adds, kg m^2 or kg.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        armature_range: Lowest and highest factor, offset or armature.
        operation: See `mdp.randomization`.
        distribution: See `mdp.randomization`.
        sharing: See `mdp.randomization`.
        asset_cfg: The joints; a free joint has no rotor and is none of them.

    Raises:
        ValueError: The range or one of the words is wrong. A negative armature rejects the reset.
    """
    draws = Draws("armature_range", armature_range, operation, distribution, sharing)
    change_field(env, env_ids, "dof_armature", asset_cfg, draws)


@writes("dof_damping")
def randomize_joint_damping(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    damping_range: Range,
    operation: Operation = "scale",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises the damping of joints, N m s/rad or N s/m; arguments as of `randomize_joint_armature`."""
    draws = Draws("damping_range", damping_range, operation, distribution, sharing)
    change_field(env, env_ids, "dof_damping", asset_cfg, draws)


@writes("dof_frictionloss")
def randomize_joint_friction(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    friction_range: Range,
    operation: Operation = "scale",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises the dry friction of joints, N m or N; arguments as of `randomize_joint_armature`."""
    draws = Draws("friction_range", friction_range, operation, distribution, sharing)
    change_field(env, env_ids, "dof_frictionloss", asset_cfg, draws)


@writes("actuator_gainprm", "actuator_biasprm")
class randomize_actuator_gains:
    """Randomises the stiffness and the damping of position actuators, force = kp (control - q) - kd dq/dt."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        """Checks that every actuator it means has a stiffness.

        Raises:
            ValueError: One is no position actuator.
        """
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        fields = env.model_layout.fields
        gain, bias = (fields[f"actuator_{part}prm"].nominal_tensor() for part in ("gain", "bias"))
        is_position = (gain[:, 0] > 0.0) & (bias[:, 1] == -gain[:, 0])
        names = actuators_meant(env, asset_cfg)
        good = is_position.to(env.device)[env.scene[asset_cfg.name].control_ids(names)].tolist()
        wrong = [name for name, is_good in zip(names, good, strict=True) if not is_good]
        if wrong:
            raise ValueError(f"actuators {wrong} have no stiffness; name position actuators in asset_cfg")

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: torch.Tensor,
        kp_range: Range | None = None,
        kd_range: Range | None = None,
        operation: Operation = "scale",
        distribution: Distribution = "uniform",
        sharing: Sharing = "per_element",
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> None:
        """Stages new gains.

        Args:
            env: The environment.
            env_ids: (K,) rows.
            kp_range: Lowest and highest factor, offset or stiffness (N m/rad or N/m); None leaves it.
            kd_range: Lowest and highest factor, offset or damping (N m s/rad or N s/m); None leaves it.
            operation: See `mdp.randomization`.
            distribution: See `mdp.randomization`.
            sharing: See `mdp.randomization`.
            asset_cfg: The actuators.

        Raises:
            ValueError: Neither range is given, or a range or one of the words is wrong.
        """
        if kp_range is None and kd_range is None:
            raise ValueError("neither kp_range nor kd_range is given")
        entity = env.scene[asset_cfg.name]
        ids, data = entity.element_ids(asset_cfg, "actuator"), entity.data
        if kp_range is not None:
            kp = data.model_values("actuator_gainprm", env_ids, ids, _KP)
            kp = combine_drawn(env, kp, Draws("kp_range", kp_range, operation, distribution, sharing))
            data.write_model("actuator_gainprm", kp, env_ids, ids, _KP)
            data.write_model("actuator_biasprm", -kp, env_ids, ids, _MINUS_KP)
        if kd_range is not None:
            kd = -data.model_values("actuator_biasprm", env_ids, ids, _MINUS_KD)
            kd = combine_drawn(env, kd, Draws("kd_range", kd_range, operation, distribution, sharing))
            data.write_model("actuator_biasprm", -kd, env_ids, ids, _MINUS_KD)


@writes("actuator_forcerange")
def randomize_effort_limits(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    scale_range: Range,
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Scales both force limits of an actuator by one factor; an actuator without limits stays without.

    Arguments are those of `randomize_body_inertia`; `asset_cfg` names actuators.
    """
    draws = Draws("scale_range", scale_range, "scale", distribution, sharing)
    scale_whole(env, env_ids, ("actuator_forcerange",), asset_cfg, draws)
