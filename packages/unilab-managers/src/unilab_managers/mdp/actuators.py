"""What actuators do to the joints that they drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_core.entity_cfg import SceneEntityCfg, column_index, match_names
from unisim.model_layout import find

if TYPE_CHECKING:
    from unilab_managers.cfg.term import TermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["JointActuators", "OfJointActuators"]


class JointActuators:
    """U actuators of an entity, each of which drives one of its joints: force x gear, at the joint's velocity."""

    row_settings: ClassVar[tuple[str, ...]] = ("_entity", "_ids", "_joints", "_gears")

    def __init__(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> None:
        """Finds the actuators and their joints; reads nothing.

        Args:
            env: The environment.
            asset_cfg: The entity, and its actuators: `actuator_names`, all where it is None.

        Raises:
            ValueError: A name matches no actuator, or one of them drives no joint of the entity.
        """
        entity = env.scene[asset_cfg.name]
        ids = match_names(
            asset_cfg.actuator_names,
            entity.actuator_names,
            preserve_order=asset_cfg.preserve_order,
            owner=f"{asset_cfg.name} actuator_names",
        )
        joints, gears = [], []
        for i in ids:
            name = f"{asset_cfg.name}/{entity.actuator_names[i]}"
            actuator = find(env.model_layout.actuators, name, "actuator")
            joint = (actuator.joint or "").removeprefix(f"{asset_cfg.name}/")
            if joint not in entity.joint_names:
                raise ValueError(
                    f"actuator {name!r} drives no slide or hinge joint of {asset_cfg.name!r}, so it has no torque "
                    "and power at a joint; leave it out of actuator_names"
                )
            joints.append(entity.joint_names.index(joint))
            gears.append(actuator.gear)
        self._env = env
        self._entity = asset_cfg.name
        self._ids = column_index(ids, env.device)
        self._joints = column_index(joints, env.device)
        self._gears = None if all(g == 1.0 for g in gears) else torch.tensor(gears, device=env.device)

    def torque(self) -> torch.Tensor:
        """Returns force or torque on the joints in the last substep, (N, U) N or N m; to be read only."""
        force = self._env.scene[self._entity].data.actuator_force[:, self._ids]
        return force if self._gears is None else force * self._gears

    def power(self) -> torch.Tensor:
        """Returns the mechanical power of each, (N, U) W: positive where it drives, negative where it brakes."""
        return self.torque() * self._env.scene[self._entity].data.joint_vel[:, self._joints]


class OfJointActuators:
    """A term that looks at what actuators do to their joints: at those of its `asset_cfg`."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the actuators.

        Raises:
            ValueError: A name matches no actuator, or one of them drives no joint.
        """
        self._actuators = JointActuators(env, cfg.all_params()["asset_cfg"])
