"""mjlab's side: the same cart-pole of its own public API, of the same model; its packaged one has other settings."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import torch
from mjlab.actuator.xml_actuator import XmlActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from mjlab.envs.mdp.actions import JointEffortActionCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from side import model_facts, running_threads, serve

_SLIDER, _HINGE = 0, 1
_DECAY = -math.log(0.1)
_CONES = {0: "pyramidal", 1: "elliptic"}
_JACOBIANS = {0: "dense", 1: "sparse", 2: "auto"}


def pole_angle(env: Any) -> torch.Tensor:
    """Cosine and sine of the pole's angle, (N, 2)."""
    angle = env.scene["robot"].data.joint_pos[:, _HINGE]
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def smooth_reward(env: Any, position_margin: float, velocity_margin: float) -> torch.Tensor:
    """The control suite's smooth reward, (N,)."""
    data = env.scene["robot"].data
    position, angle, velocity = (
        data.joint_pos[:, _SLIDER],
        data.joint_pos[:, _HINGE],
        data.joint_vel[:, _HINGE],
    )
    control = env.action_manager.action[:, 0].clamp(-1.0, 1.0)
    upright = (angle.cos() + 1.0) / 2.0
    centred = (1.0 + torch.exp(-_DECAY * (position / position_margin).square())) / 2.0
    small = (4.0 + (1.0 - control.square()).clamp(min=0.0)) / 5.0
    slow = (1.0 + torch.exp(-_DECAY * (velocity / velocity_margin).square())) / 2.0
    return upright * centred * small * slow


def config(request: dict[str, Any]) -> ManagerBasedRlEnvCfg:
    """Return the task as data."""

    def spec() -> mujoco.MjSpec:
        return mujoco.MjSpec.from_file(request["model"])

    option, offsets = spec().option, request["offsets"]
    settings = MujocoCfg(
        timestep=option.timestep,
        integrator=request["integrator"],
        impratio=option.impratio,
        cone=_CONES[int(option.cone)],
        jacobian=_JACOBIANS[int(option.jacobian)],
        iterations=option.iterations,
        tolerance=option.tolerance,
        ls_iterations=option.ls_iterations,
        ls_tolerance=option.ls_tolerance,
        gravity=tuple(option.gravity),
    )
    robot = EntityCfg(
        spec_fn=spec,
        articulation=EntityArticulationInfoCfg(actuators=(XmlActuatorCfg(target_names_expr=("slider",)),)),
        init_state=EntityCfg.InitialStateCfg(joint_pos={".*": 0.0}, joint_vel={".*": 0.0}),
    )
    joints = {
        name: SceneEntityCfg("robot", joint_names=(joint,))
        for name, joint in (("cart", "slider"), ("pole", "hinge"), ("both", ".*"))
    }
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(entities={"robot": robot}, num_envs=request["num_envs"]),
        sim=SimulationCfg(mujoco=settings),
        decimation=request["decimation"],
        episode_length_s=request["episode_s"],
        observations={
            "actor": ObservationGroupCfg(
                terms={
                    "cart_position": ObservationTermCfg(
                        func=mdp.joint_pos_rel, params={"asset_cfg": joints["cart"]}
                    ),
                    "pole_angle": ObservationTermCfg(func=pole_angle),
                    "velocities": ObservationTermCfg(
                        func=mdp.joint_vel_rel, params={"asset_cfg": joints["both"]}
                    ),
                }
            )
        },
        actions={"force": JointEffortActionCfg(entity_name="robot", actuator_names=("slider",), scale=1.0)},
        rewards={
            "smooth": RewardTermCfg(
                func=smooth_reward, weight=1.0, params={"position_margin": 2.0, "velocity_margin": 5.0}
            )
        },
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        events={
            f"place_{name}": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={
                    f"{kind}_range": (-offsets[f"{name}_{kind}"], offsets[f"{name}_{kind}"])
                    for kind in ("position", "velocity")
                }
                | {"asset_cfg": joints[name]},
            )
            for name in ("cart", "pole")
        },
        scale_rewards_by_dt=False,
        seed=0,
    )


class MjLab:
    """A manager-based environment of mjlab's."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._env = ManagerBasedRlEnv(config(request), device=request["device"])
        self.num_envs, self.device = self._env.num_envs, torch.device(self._env.device)
        self.num_actions = self._env.action_manager.total_action_dim

    def reset(self) -> torch.Tensor:
        """See `Side`."""
        return self._env.reset()[0]["actor"]

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Side`."""
        observations, reward, terminated, truncated, _ = self._env.step(actions)
        return observations["actor"], reward, terminated | truncated

    def set_ages(self, steps: torch.Tensor) -> None:
        """See `Side`."""
        self._env.episode_length_buf.copy_(steps)

    def facts(self) -> dict[str, Any]:
        """See `Side`."""
        env = self._env
        columns = env.observation_manager.group_obs_dim["actor"]
        return model_facts(env.sim.mj_model) | {
            "threads": running_threads(),
            "decimation": env.cfg.decimation,
            "episode steps": env.max_episode_length,
            "observation columns": {"obs": int(columns[0])},
            "observation terms": len(env.observation_manager.active_terms["actor"]),
            "reward terms": len(env.reward_manager.active_terms),
            "termination terms": len(env.termination_manager.active_terms),
            "reset events": len(env.event_manager.active_terms["reset"]),
        }


if __name__ == "__main__":
    serve(MjLab, ("mjlab", "mujoco", "mujoco-warp", "warp-lang"))
