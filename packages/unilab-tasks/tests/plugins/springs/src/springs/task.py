"""The task `springs-settle`, with a term of the package's own, and how it is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from springs.model import two_masses
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unisim import EntityCfg, SceneCfg, SimCfg

if TYPE_CHECKING:
    from unilab_managers import ManagerBasedRlEnv
    from unilab_rl import PpoCfg


def closeness(env: ManagerBasedRlEnv, width: float) -> torch.Tensor:
    """Returns how close the masses are to rest, (N,) in (0, 1]."""
    return torch.exp(-env.scene.sensor("place").square().sum(dim=1) / width**2)


def settle() -> ManagerBasedRlEnvCfg:
    """Returns the task: 50 Hz, one second."""
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=two_masses)}),
        sim=SimCfg(timestep=0.01),
        decimation=2,
        episode_length_s=1.0,
        num_envs=16,
        observations={
            "obs": ObservationGroupCfg(
                terms={
                    "position": ObservationTermCfg(func=mdp.joint_pos),
                    "velocity": ObservationTermCfg(func=mdp.joint_vel),
                }
            )
        },
        actions={"push": mdp.JointEffortActionCfg()},
        rewards={"closeness": RewardTermCfg(func=closeness, weight=1.0, params={"width": 0.3})},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
        events={
            "place": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={"position_range": (-0.5, 0.5), "velocity_range": (0.0, 0.0)},
            )
        },
    )


def settle_ppo() -> PpoCfg:
    """Returns PPO for it."""
    from unilab_rl import PpoCfg

    return PpoCfg(iterations=3, num_steps_per_env=8, actor_hidden_dims=(8,), critic_hidden_dims=(8,))
