"""UniLab's side: the same cart-pole of its own public API; its wheel has no such task.

Where its term library has a term, that one is used; the others are plain functions, as its tasks write them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from side import model_facts, running_threads, serve
from unilab.base.backend_factory import create_backend, env_backend_kwargs
from unilab.base.entity import EntityCfg
from unilab.base.scene import SceneCfg
from unilab.envs import ManagerBasedRlEnvCfg, make_manager_based_rl_env, mdp
from unilab.envs.manager_based_rl_env import ManagerBasedRlEnv
from unilab.managers import (
    EventTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
)

_SLIDER, _HINGE = 0, 1
_DECAY = -math.log(0.1)


def cart_position(env: Any) -> torch.Tensor:
    """Where the cart is, (N, 1) m."""
    return mdp.joint_pos_rel(env)[:, :1]


def pole_angle(env: Any) -> torch.Tensor:
    """Cosine and sine of the pole's angle, (N, 2)."""
    angle = mdp.joint_pos_rel(env)[:, _HINGE]
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def smooth_reward(env: Any, position_margin: float, velocity_margin: float) -> torch.Tensor:
    """The control suite's smooth reward, (N,)."""
    positions, velocities = mdp.joint_pos_rel(env), mdp.joint_vel_rel(env)
    position, angle, velocity = positions[:, _SLIDER], positions[:, _HINGE], velocities[:, _HINGE]
    control = env.action_manager.action[:, 0].clamp(-1.0, 1.0)
    upright = (angle.cos() + 1.0) / 2.0
    centred = (1.0 + torch.exp(-_DECAY * (position / position_margin).square())) / 2.0
    small = (4.0 + (1.0 - control.square()).clamp(min=0.0)) / 5.0
    slow = (1.0 + torch.exp(-_DECAY * (velocity / velocity_margin).square())) / 2.0
    return upright * centred * small * slow


def place_joint(env: Any, env_ids: torch.Tensor, position: float, velocity: float, joint: int) -> None:
    """Put a joint within `position` and `velocity` of where it rests; all rows are drawn, as its own events do."""
    entity = env.scene["robot"]
    resting = entity.data.default_joint_pos(env.device)[:, [joint]]
    drawn = env.rng.uniform(-1.0, 1.0, (env.num_envs, 2))
    entity.write_joint_state_to_sim_mask(
        resting + drawn[:, :1] * position,
        drawn[:, 1:] * velocity,
        env.event_term_mask_buffer.scatter(env_ids),
        joint_ids=(joint,),
    )


def config(request: dict[str, Any]) -> ManagerBasedRlEnvCfg:
    """Return the task as data."""
    offsets = request["offsets"]
    robot = EntityCfg(
        root_body_name="cart" if request["body_state"] else None,
        joint_names=("slider", "hinge"),
        actuator_names=("slide",),
    )
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(model_file=request["model"], entities={"robot": robot}),
        sim_dt=request["timestep"],
        ctrl_dt=request["timestep"] * request["decimation"],
        max_episode_seconds=request["episode_s"],
        observations={
            "policy": ObservationGroupCfg(
                terms={
                    "cart_position": ObservationTermCfg(func=cart_position),
                    "pole_angle": ObservationTermCfg(func=pole_angle),
                    "velocities": ObservationTermCfg(func=mdp.joint_vel_rel),
                }
            )
        },
        actions={"force": mdp.JointEffortActionCfg(entity_name="robot", actuator_names=("slider",))},
        rewards={
            "smooth": RewardTermCfg(
                func=smooth_reward, weight=1.0, params={"position_margin": 2.0, "velocity_margin": 5.0}
            )
        },
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        events={
            f"place_{name}": EventTermCfg(
                func=place_joint,
                mode="reset",
                params={
                    "position": offsets[f"{name}_position"],
                    "velocity": offsets[f"{name}_velocity"],
                    "joint": joint,
                },
            )
            for name, joint in (("cart", _SLIDER), ("pole", _HINGE))
        },
        scale_rewards_by_dt=False,
        seed=0,
    )


class UniLab:
    """A manager-based environment of UniLab's."""

    def __init__(self, request: dict[str, Any]) -> None:
        cfg = config(request)
        if request["body_state"]:
            env = make_manager_based_rl_env(cfg, num_envs=request["num_envs"], backend_type="mujoco")
        else:  # what the factory does, but for the body whose state it always tracks
            backend = create_backend(
                "mujoco", cfg.scene, request["num_envs"], cfg.sim_dt, **env_backend_kwargs(cfg)
            )
            env = ManagerBasedRlEnv(cfg, backend, request["num_envs"])
        env.init_state()
        self._env, self.device = env, env.device
        self.num_envs, self.num_actions = env.num_envs, env.action_space.shape[0]

    def reset(self) -> torch.Tensor:
        """See `Side`."""
        return self._env.reset()[0]["obs"]

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Side`."""
        state = self._env.step(actions)
        return state.obs["obs"], state.reward, state.terminated | state.truncated

    def set_ages(self, steps: torch.Tensor) -> None:
        """See `Side`."""
        self._env.set_episode_length_buf(steps)

    def facts(self) -> dict[str, Any]:
        """See `Side`."""
        env = self._env
        return model_facts(env.get_playback_model()) | {
            "threads": running_threads(),
            "decimation": env.cfg.sim_substeps,
            "episode steps": env.max_episode_length,
            "observation columns": env.obs_groups_spec,
            "observation terms": len(env.observation_manager.active_terms["policy"]),
            "reward terms": len(env.reward_manager.active_terms),
            "termination terms": len(env.termination_manager.active_terms),
            "reset events": len(env.event_manager.active_terms["reset"]),
        }


if __name__ == "__main__":
    serve(UniLab, ("unilab", "unisim-core", "mujoco", "mjbatch-uni"))
