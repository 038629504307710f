"""What changes each config field in the task with everything, for tests to see that something follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from field_support import OtherRecorder, OwnerCfg, often

from unilab_core import SceneEntityCfg
from unilab_managers import ConstantNoiseCfg, ManagerBasedRlEnvCfg, ResampleConditionCfg, mdp
from unilab_tasks.robots.quad12 import quad12

JOINTS = "observations.obs.terms.joint_pos"
PROBE, HIT = -2, -1
POSE = ("pos_x", "pos_y", "pos_z", "roll", "pitch", "yaw")
Change = Mapping[str, Any] | Callable[[ManagerBasedRlEnvCfg], ManagerBasedRlEnvCfg]


def _sensor(index: int, **update: Any) -> Change:
    def change(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
        sensors = list(cfg.scene.sensors)
        sensors[index] = sensors[index].model_copy(update=update)
        return cfg.with_({"scene.sensors": tuple(sensors)})

    return change


CHANGES: dict[str, Change] = {
    "TorchEnvCfg.scene": {"scene.entities.robot": quad12("go2_like")},
    "TorchEnvCfg.sim": {"sim.gravity": (0.0, 0.0, -5.0)},
    "TorchEnvCfg.decimation": {"decimation": 3},
    "TorchEnvCfg.episode_length_s": {"episode_length_s": 0.3},
    "TorchEnvCfg.num_envs": {"num_envs": 2},
    "TorchEnvCfg.is_finite_horizon": {"is_finite_horizon": True},
    "TermsCfg.observations": {"observations.critic": None},
    "TermsCfg.actions": {"actions.joint_pos": mdp.JointVelocityActionCfg()},
    "TermsCfg.rewards": {"rewards.upright": None},
    "TermsCfg.terminations": {"terminations.low": None},
    "TermsCfg.commands": {"commands.pose.pos_x": (1.0, 1.0)},
    "TermsCfg.events": {"events.lower": None},
    "TermsCfg.curriculum": {"curriculum.rise": None},
    "TermsCfg.metrics": {"metrics.rate": None},
    "TermsCfg.recorders": {"recorders.log": None},
    "TermsCfg.reset_owner": {"reset_owner": OwnerCfg()},
    "TermsCfg.scale_rewards_by_dt": {"scale_rewards_by_dt": False},
    "TermsCfg.reward_floor": {"reward_floor": None, "rewards.gait.weight": -2.0},
    # the simulation
    "SceneCfg.entities": {"scene.entities.robot": quad12("go2_like")},
    "SceneCfg.sensors": _sensor(PROBE, target="robot/FR_foot"),
    "EntityCfg.spec": {
        "scene.entities.ground.params": {"friction": 0.0},
        "scene.entities.robot.pos": (0, 0, 1.0),
    },
    "EntityCfg.params": {"scene.entities.robot.params.kp": 20.0},
    "EntityCfg.pos": {"scene.entities.ground.pos": (0.0, 0.0, -0.05)},
    "EntityCfg.quat": {"scene.entities.ground.quat": (0.995, 0.0998, 0.0, 0.0)},
    "EntityCfg.joint_pos": {"scene.entities.robot.joint_pos.FR_hip": 0.4},
    "EntityCfg.joint_vel": {"scene.entities.robot.joint_vel.FR_hip": 0.5},
    "BuiltinSensorCfg.kind": _sensor(PROBE, kind="framepos"),
    "BuiltinSensorCfg.target": _sensor(PROBE, target="robot/FR_foot"),
    "ContactSensorCfg.of": _sensor(HIT, of="body"),
    "ContactSensorCfg.target": _sensor(HIT, target="robot/FL_thigh"),
    "ContactSensorCfg.against": _sensor(HIT, against="robot/trunk"),
    "ContactSensorCfg.data": _sensor(HIT, data=("found", "pos")),
    "ContactSensorCfg.reduce": _sensor(HIT, reduce="netforce"),
    "ContactSensorCfg.num": _sensor(HIT, num=2),
    "SimCfg.timestep": {"sim.timestep": 0.004},
    "SimCfg.integrator": {"sim.integrator": "euler"},
    "SimCfg.cone": {"sim.cone": "elliptic"},
    "SimCfg.iterations": {"sim.iterations": 1},
    "SimCfg.gravity": {"sim.gravity": (0.0, 0.0, -5.0)},
    # observations
    "ObservationGroupCfg.terms": {"observations.obs.terms.probe": None},
    "ObservationGroupCfg.enable_corruption": {"observations.obs.enable_corruption": False},
    "ObservationGroupCfg.history_length": {"observations.obs.history_length": 0},
    "ObservationTermCfg.func": {f"{JOINTS}.func": mdp.joint_pos},
    "ObservationTermCfg.params": {"observations.obs.terms.command.params.command_name": "pose"},
    "ObservationTermCfg.noise": {f"{JOINTS}.noise": None},
    "ObservationTermCfg.clip": {f"{JOINTS}.clip": (-0.1, 0.1)},
    "ObservationTermCfg.scale": {f"{JOINTS}.scale": 3.0},
    "ObservationTermCfg.delay_min_lag": {f"{JOINTS}.delay_min_lag": 3},
    "ObservationTermCfg.delay_max_lag": {f"{JOINTS}.delay_max_lag": 1},
    "ObservationTermCfg.delay_per_env": {f"{JOINTS}.delay_per_env": False},
    "ObservationTermCfg.delay_hold_prob": {f"{JOINTS}.delay_hold_prob": 1.0},
    "ObservationTermCfg.delay_update_period": {f"{JOINTS}.delay_update_period": 5},
    "ObservationTermCfg.delay_per_env_phase": {f"{JOINTS}.delay_per_env_phase": False},
    "ObservationTermCfg.history_length": {f"{JOINTS}.history_length": 3},
    "NoiseCfg.operation": {f"{JOINTS}.noise.noise.operation": "scale"},
    "UniformNoiseCfg.n_min": {f"{JOINTS}.noise.noise.n_min": 0.0},
    "UniformNoiseCfg.n_max": {f"{JOINTS}.noise.noise.n_max": 0.0},
    "GaussianNoiseCfg.mean": {f"{JOINTS}.noise.bias.mean": 0.0},
    "GaussianNoiseCfg.std": {f"{JOINTS}.noise.bias.std": 0.0},
    "ConstantNoiseCfg.bias": {"observations.obs.terms.gait_clock.noise.bias": 0.25},
    "AdditiveBiasNoiseCfg.bias": {f"{JOINTS}.noise.bias": ConstantNoiseCfg(bias=0.1)},
    "AdditiveBiasNoiseCfg.noise": {f"{JOINTS}.noise.noise": None},
    "AdditiveBiasNoiseCfg.per_component": {f"{JOINTS}.noise.per_component": False},
    # actions and commands
    "JointActionCfg.joint_names": {"actions.joint_pos.joint_names": (".*_hip",)},
    "JointActionCfg.preserve_order": {
        "actions.joint_pos.joint_names": (".*_calf", ".*_thigh", ".*_hip"),
        "actions.joint_pos.preserve_order": True,
    },
    "JointActionCfg.scale": {"actions.joint_pos.scale": 0.25},
    "JointActionCfg.clip": {"actions.joint_pos.clip": (-0.1, 0.1)},
    "JointActionCfg.delay_min_lag": {"actions.joint_pos.delay_min_lag": 2},
    "JointActionCfg.delay_max_lag": {"actions.joint_pos.delay_max_lag": 1},
    "JointPositionActionCfg.offset": {"actions.joint_pos.offset": 0.1},
    "CommandTermCfg.entity": {"commands.twist.entity": "ground"},
    "CommandTermCfg.resampling_time_range": {"commands.twist.resampling_time_range": (0.04, 0.04)},
    "CommandTermCfg.metrics_start_s": {"commands.twist.metrics_start_s": 0.1},
    "UniformVelocityCommandCfg.lin_vel_x": {"commands.twist.lin_vel_x": (0.0, 0.1)},
    "UniformVelocityCommandCfg.lin_vel_y": {"commands.twist.lin_vel_y": (0.0, 0.1)},
    "UniformVelocityCommandCfg.ang_vel_z": {"commands.twist.ang_vel_z": (0.0, 0.1)},
    "UniformVelocityCommandCfg.heading": {"commands.twist.heading": (0.5, 0.5)},
    "UniformVelocityCommandCfg.heading_control_stiffness": {"commands.twist.heading_control_stiffness": 0.1},
    "UniformVelocityCommandCfg.rel_heading_envs": {"commands.twist.rel_heading_envs": 1.0},
    "UniformVelocityCommandCfg.rel_standing_envs": {"commands.twist.rel_standing_envs": 1.0},
    "UniformVelocityCommandCfg.fixed": {"commands.twist.fixed": ((0.1, 0.2, 0.3),)},
    "UniformPoseCommandCfg.body_name": {"commands.pose.body_name": "FR_calf"},
    "UniformPoseCommandCfg.frame": {"commands.pose.frame": "world"},
    **{f"UniformPoseCommandCfg.{axis}": {f"commands.pose.{axis}": (0.5, 0.5)} for axis in POSE},
    "GaitClockCfg.velocity_command": {"commands.gait.velocity_command": "pose"},
    "GaitClockCfg.frequency_hz": {"commands.gait.frequency_hz": 3.0},
    "GaitClockCfg.standing_below": {"commands.gait.standing_below": 0.5},
    "GaitClockCfg.resampling_time_range": {"commands.gait.resampling_time_range": (0.04, 0.04)},
    # everything else
    "RewardTermCfg.func": {"rewards.lin_vel_z.func": mdp.ang_vel_xy_l2},
    "RewardTermCfg.params": {"rewards.track_lin_vel.params.std": 0.1},
    "RewardTermCfg.weight": {"rewards.gait.weight": 3.0},
    "TerminationTermCfg.func": {"terminations.low.func": mdp.time_out, "terminations.low.params": {}},
    "TerminationTermCfg.params": {"terminations.low.params.minimum_height": 0.5},
    "TerminationTermCfg.time_out": {"terminations.time_out.time_out": False},
    "EventTermCfg.func": {
        "events.lower.func": mdp.reset_root_state_uniform,
        "events.lower.params": {
            "pose_range": {"z": (0.1, 0.1)},
            "velocity_range": {},
        },
    },
    "EventTermCfg.params": {"events.lower.params.by": 0.02},
    "EventTermCfg.mode": {"events.push.mode": "step", "events.push.interval_range_s": None},
    "EventTermCfg.interval_range_s": {"events.push.interval_range_s": (0.04, 0.04)},
    "EventTermCfg.is_global_time": {"events.push.is_global_time": True},
    "EventTermCfg.resample_on_reset": {"events.push.resample_on_reset": False},
    "EventTermCfg.min_step_count_between_reset": {"events.lower.min_step_count_between_reset": 100},
    "CurriculumTermCfg.func": {
        "curriculum.rise.func": mdp.reward_params,
        "curriculum.rise.params.stages": ({"step": 5, "params": {"radius": 0.01}},),
    },
    "CurriculumTermCfg.params": {"curriculum.rise.params.stages": ({"step": 9, "weight": 4.0},)},
    "CurriculumTermCfg.mode": {"curriculum.rise.mode": "episode"},
    "MetricsTermCfg.func": {"metrics.rate.func": mdp.joint_speed},
    "MetricsTermCfg.params": {
        "metrics.rate.func": mdp.joint_speed,
        "metrics.rate.params.asset_cfg": SceneEntityCfg(joint_names=("FR_hip",)),
    },
    "CommandTermCfg.resample_when": {"commands.twist.resample_when": ResampleConditionCfg(func=often)},
    "MetricsTermCfg.reduce": {"metrics.rate.reduce": "max"},
    "RecorderTermCfg.func": {"recorders.log.func": OtherRecorder},
    "RecorderTermCfg.params": {"recorders.log.params.rows": (0, 1)},
}

BREAKS: dict[str, tuple[Change, str]] = {
    # Fields whose other values leave the task without something that its terms name.
    "BuiltinSensorCfg.of": (_sensor(PROBE, of="body"), "'robot/imu'"),
    "SensorCfg.name": (_sensor(PROBE, name="prob"), "'robot/probe'|'probe'"),
    "SensorCfg.substeps": (_sensor(PROBE, substeps=False), "substep history"),
    "ActionTermCfg.entity": ({"actions.joint_pos.entity": "ground"}, "actions term 'joint_pos'"),
}
