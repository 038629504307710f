"""A task with every kind of term and setting, so that any config field can be changed in it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from unilab_core import make_env
from unilab_core.factory import load_env_cfg
from unilab_managers import (
    AdditiveBiasNoiseCfg,
    ConstantNoiseCfg,
    CurriculumTermCfg,
    EventTermCfg,
    GaussianNoiseCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    MetricsTermCfg,
    ObservationTermCfg,
    RecorderTermCfg,
    ResetOwnerCfg,
    UniformNoiseCfg,
    mdp,
)
from unisim import BuiltinSensorCfg, ContactSensorCfg

TASK = "velocity-flat-quadruped"


def probe(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns two sensors and the history of one of them, (N, dim)."""
    values = [
        env.scene.sensor("probe"),
        env.scene.sensor_history("probe").flatten(1),
        env.scene.sensor("hit"),
    ]
    return torch.cat(values, dim=1)


def explode(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns a reward that is not finite in row 0 in every third step, (N,)."""
    values = torch.ones(env.num_envs)
    values[0] = torch.nan if env.step_counter % 3 == 2 else 1.0
    return values


def often(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Whether a command is replaced, (N,) bool: in every third step of an episode."""
    return env.episode_length % 3 == 0


def lower(env: ManagerBasedRlEnv, env_ids: torch.Tensor, by: float = 0.01) -> None:
    """Places the root `by` m deeper."""
    data = env.scene["robot"].data
    pose = torch.cat([data.root_pos_w, data.root_quat_w], dim=1)[env_ids]
    pose[:, 2] -= by
    data.write_root_pose(pose, env_ids)


class _Owner:
    """A reset owner that turns nothing but a hip."""

    def __init__(self, env: ManagerBasedRlEnv, angle: float) -> None:
        self._data, self._angle = env.scene["robot"].data, angle

    def reset_transaction(self, env_ids: torch.Tensor) -> None:
        angles = torch.full((env_ids.numel(), 1), self._angle)
        self._data.write_joint_state(angles, torch.zeros_like(angles), env_ids, slice(0, 1))

    def reset_committed(self, env_ids: torch.Tensor) -> None: ...


class OwnerCfg(ResetOwnerCfg):
    """Makes `_Owner`."""

    angle: float = 0.3

    def make(self, env: Any) -> _Owner:
        return _Owner(env, self.angle)


class OtherRecorder(mdp.EpisodeRecorder):
    """A recorder that is another class."""

    def record_post_step(self) -> None:
        """Records nothing."""


def everything() -> ManagerBasedRlEnvCfg:
    """Returns the quadruped's task with more of everything, and episodes of 12 steps."""
    cfg = load_env_cfg(TASK, num_envs=3)
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    joint_pos = ObservationTermCfg(
        func=mdp.joint_pos_rel,
        noise=AdditiveBiasNoiseCfg(
            bias=GaussianNoiseCfg(mean=0.1, std=0.1), noise=UniformNoiseCfg(n_min=-0.1, n_max=0.1)
        ),
        clip=(-0.5, 0.5),
        scale=2.0,
        delay_min_lag=0,
        delay_max_lag=3,
        delay_hold_prob=0.3,
        delay_update_period=2,
        history_length=2,
    )
    obs = cfg.observations["obs"]
    terms = {
        **obs.terms,
        "joint_pos": joint_pos,
        "gait_clock": obs.terms["gait_clock"].model_copy(update={"noise": ConstantNoiseCfg(bias=0.5)}),
        "probe": ObservationTermCfg(func=probe),
        "target": ObservationTermCfg(func=mdp.generated_commands, params={"command_name": "pose"}),
    }
    sensors = (
        BuiltinSensorCfg(name="probe", kind="framelinvel", target="robot/imu", substeps=True),
        ContactSensorCfg(name="hit", of="subtree", target="robot/FR_thigh", reduce="maxforce"),
    )
    scene = cfg.scene.model_copy(update={"sensors": (*cfg.scene.sensors, *sensors)})
    short = (0.06, 0.1)
    return cfg.model_copy(
        update={
            "scene": scene,
            "episode_length_s": 0.24,
            "observations": {**cfg.observations, "obs": obs.model_copy(update={"terms": terms})},
            "actions": {
                "joint_pos": cfg.actions["joint_pos"].model_copy(
                    update={"clip": (-1.0, 1.0), "delay_max_lag": 2}
                )
            },
            "commands": {
                "twist": cfg.commands["twist"].model_copy(
                    update={"resampling_time_range": short, "heading": (-1.0, 1.0), "rel_heading_envs": 0.5}
                ),
                "pose": mdp.UniformPoseCommandCfg(
                    body_name="trunk",
                    pos_x=(0.1, 0.2),
                    pos_y=(0.1, 0.2),
                    pos_z=(0.1, 0.2),
                    resampling_time_range=short,
                ),
                "gait": cfg.commands["gait"],
            },
            "events": {
                **cfg.events,
                "push": cfg.events["push"].model_copy(update={"interval_range_s": (0.1, 0.3)}),
                "lower": EventTermCfg(func=lower, mode="reset"),
            },
            "curriculum": {
                "rise": CurriculumTermCfg(
                    func=mdp.reward_weight,
                    mode="step",
                    params={"reward_name": "gait", "stages": ({"step": 5, "weight": 4.0},)},
                )
            },
            "metrics": {"rate": MetricsTermCfg(func=mdp.action_rate)},
            "recorders": {"log": RecorderTermCfg(func=mdp.EpisodeRecorder, params={"folder": "episodes"})},
        }
    )


def seen(cfg: ManagerBasedRlEnvCfg) -> str:
    """Returns a digest of all that an environment shows in 16 steps with resets, and of the files it leaves."""
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        for value in values:
            digest.update(
                value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
            )

    generator = torch.Generator().manual_seed(5)
    with make_env(cfg, seed=7) as env:
        env.reset()
        for _ in range(16):
            state = env.step(torch.randn(env.num_envs, env.num_actions, generator=generator))
            add(*state.obs.values(), state.reward, state.terminated, state.truncated)
            for log in (state.info["log"], state.info.get("episode", {})):
                add(*(item for pair in log.items() for item in pair))
    for path in sorted(Path.cwd().rglob("*")):
        add(path.name, path.stat().st_size)
        path.unlink() if path.is_file() else None
    return digest.hexdigest()
