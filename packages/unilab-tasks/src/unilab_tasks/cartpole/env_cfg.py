"""Environment configs of the cart-pole tasks: 50 Hz, 500-step episodes, no termination but the time limit."""

from __future__ import annotations

import math

from unilab_core import SceneEntityCfg
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unilab_tasks.cartpole.mdp import pole_angle_cos_sin, smooth_reward
from unilab_tasks.robots.cartpole import build_cartpole
from unisim import EntityCfg, SceneCfg, SimCfg

__all__ = ["cartpole_balance", "cartpole_swingup"]

_SLIDER = SceneEntityCfg(joint_names=("slider",))
_HINGE = SceneEntityCfg(joint_names=("hinge",))


def _cartpole(
    hinge_pos: float, slider_offset: float, hinge_offset: float, vel_offset: float
) -> ManagerBasedRlEnvCfg:
    """Returns the task whose episodes begin with the pole at `hinge_pos`, give or take the offsets."""
    still = (-vel_offset, vel_offset)
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_cartpole, joint_pos={"hinge": hinge_pos})}),
        # Nothing but positions and velocities is read: without fresh reads a kept workspace only costs memory.
        sim=SimCfg(timestep=0.01, integrator="rk4", persistent=False),
        decimation=2,
        episode_length_s=10.0,
        num_envs=128,
        observations={
            "obs": ObservationGroupCfg(
                terms={
                    "cart_position": ObservationTermCfg(func=mdp.joint_pos, params={"asset_cfg": _SLIDER}),
                    "pole_angle": ObservationTermCfg(func=pole_angle_cos_sin),
                    "velocities": ObservationTermCfg(func=mdp.joint_vel),
                }
            )
        },
        actions={"force": mdp.JointEffortActionCfg(joint_names=("slider",))},
        rewards={
            "smooth": RewardTermCfg(
                func=smooth_reward, weight=1.0, params={"position_margin": 2.0, "velocity_margin": 5.0}
            )
        },
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
        events={
            "place_cart": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={
                    "position_range": (-slider_offset, slider_offset),
                    "velocity_range": still,
                    "asset_cfg": _SLIDER,
                },
            ),
            "place_pole": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={
                    "position_range": (-hinge_offset, hinge_offset),
                    "velocity_range": still,
                    "asset_cfg": _HINGE,
                },
            ),
        },
        # Each step is worth at most 1, so a score of 1000 x mean reward reads like the benchmark's.
        scale_rewards_by_dt=False,
    )


def cartpole_balance() -> ManagerBasedRlEnvCfg:
    """Returns the balance task: the pole begins within 2 degrees of upright."""
    return _cartpole(hinge_pos=0.0, slider_offset=0.1, hinge_offset=0.034, vel_offset=0.01)


def cartpole_swingup() -> ManagerBasedRlEnvCfg:
    """Returns the swing-up task: the pole begins hanging."""
    return _cartpole(hinge_pos=math.pi, slider_offset=0.02, hinge_offset=0.02, vel_offset=0.02)
