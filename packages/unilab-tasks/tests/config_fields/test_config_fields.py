"""No dead config field: changing any field that a task can have changes what the environment does."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import mujoco
import mujoco_warp
import pytest
import torch
import warp
from field_support import OtherRecorder, OwnerCfg, everything, explode, often

from unilab_core import (
    CapabilityError,
    ConfigError,
    NanGuardCfg,
    NonFiniteError,
    SceneEntityCfg,
    list_tasks,
    make_env,
)
from unilab_core.factory import load_env_cfg
from unilab_managers import (
    ConstantNoiseCfg,
    ManagerBasedRlEnvCfg,
    ResampleConditionCfg,
    mdp,
)
from unilab_tasks.robots.quad12 import quad12
from unisim import Cfg

LAYERS = ("unisim", "unilab_core", "unilab_managers", "unilab_tasks")


def _seen(cfg: ManagerBasedRlEnvCfg) -> str:
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


# ---------------------------------------------------------------- what each field changes

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
ELSEWHERE = {
    "ObservationGroupCfg.flatten_history_dim": "test_the_layout_of_a_history_changes_what_is_shown",
    "SimCfg.ls_iterations": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.num_threads": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.persistent": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.memory_mib": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.nconmax": "test_settings_of_the_device_reach_the_device",
    "SimCfg.njmax": "test_settings_of_the_device_reach_the_device",
    "SimCfg.graph_capture": "test_settings_of_the_device_reach_the_device",
    "TorchEnvCfg.nan_guard": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.policy": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.dump_dir": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.max_dumps": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "JointVelocityActionCfg.offset": "test_offsets_of_the_other_actions_move_the_robot",
    "JointEffortActionCfg.offset": "test_offsets_of_the_other_actions_move_the_robot",
    "DcMotorActionCfg.saturation_effort": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorActionCfg.velocity_limit": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorActionCfg.effort_limit": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.stiffness": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.damping": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.offset": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorEffortActionCfg.offset": "test_a_field_of_a_motor_changes_what_it_gives",
}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is seen of the task with everything, unchanged; and seen again, for chance would prove everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("before"))
        seen = _seen(everything())
        assert _seen(everything()) == seen
    return seen


def _changed(change: Change) -> ManagerBasedRlEnvCfg:
    return change(everything()) if callable(change) else everything().with_(change)


@pytest.mark.parametrize("field", CHANGES)
def test_a_change_of_the_field_is_seen(field: str, before: str):
    assert _seen(_changed(CHANGES[field])) != before


@pytest.mark.parametrize("field", BREAKS)
def test_a_change_of_the_field_leaves_terms_without_what_they_name(field: str):
    change, message = BREAKS[field]
    with pytest.raises((ConfigError, CapabilityError), match=message):
        make_env(_changed(change))


def test_the_layout_of_a_history_changes_what_is_shown():
    history = {"observations.obs.history_length": 2}
    flat, stacked = (
        everything().with_({**history, "observations.obs.flatten_history_dim": flag})
        for flag in (True, False)
    )
    assert _seen(flat) != _seen(stacked)


def test_settings_of_the_engine_reach_the_engine(monkeypatch: pytest.MonkeyPatch):
    made: list[dict[str, Any]] = []
    batch = mujoco.batch.Batch

    def spy(model: Any, num_envs: int, *, nthread: int, persistent: bool, **options: Any) -> Any:
        made.append(
            {
                "num_threads": nthread,
                "persistent": persistent,
                "memory_mib": model.narena / 2**20,
                "ls_iterations": model.opt.ls_iterations,
            }
        )
        return batch(model, num_envs, nthread=nthread, persistent=persistent, **options)

    monkeypatch.setattr(mujoco.batch, "Batch", spy)
    changes = {"num_threads": 2, "persistent": False, "memory_mib": 3, "ls_iterations": 7}
    make_env(everything()).close()
    for name, value in changes.items():
        make_env(everything().with_({f"sim.{name}": value})).close()
    plain, *changed = made
    assert changed == [{**plain, name: value} for name, value in changes.items()]
    assert all(plain[name] != value for name, value in changes.items())


@pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes
def test_settings_of_the_device_reach_the_device(monkeypatch: pytest.MonkeyPatch):
    made: list[dict[str, Any]] = []
    make_data, capture = mujoco_warp.make_data, warp.ScopedCapture

    def spy_on_room(model: Any, *, nworld: int, nconmax: int, njmax: int) -> Any:
        made.append({"nconmax": nconmax, "njmax": njmax, "graph_capture": False})
        return make_data(model, nworld=nworld, nconmax=nconmax, njmax=njmax)

    def spy_on_graphs(*args: Any, **options: Any) -> Any:
        made[-1]["graph_capture"] = True
        return capture(*args, **options)

    monkeypatch.setattr(mujoco_warp, "make_data", spy_on_room)
    monkeypatch.setattr(warp, "ScopedCapture", spy_on_graphs)
    changes = {"nconmax": 17, "njmax": 77, "graph_capture": False}
    make_env("cartpole-balance", backend="mujoco_warp", num_envs=2).close()
    for name, value in changes.items():
        overrides = {f"sim.{name}": value}
        make_env("cartpole-balance", backend="mujoco_warp", num_envs=2, overrides=overrides).close()
    plain, *changed = made
    assert changed == [{**plain, name: value} for name, value in changes.items()]
    assert all(plain[name] != value for name, value in changes.items())


def test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite(tmp_path: Path):
    def run(guard: NanGuardCfg | None) -> list[str]:
        cfg = everything().with_(
            {"rewards.upright.func": explode, "rewards.upright.params": {}, "nan_guard": guard}
        )
        with make_env(cfg.with_({"recorders.log": None}), seed=1) as env:
            env.reset()
            for _ in range(8):
                env.step(torch.zeros(3, 12))
        return sorted(path.parent.name for path in tmp_path.rglob("*") if path.is_file())

    for guard in (None, NanGuardCfg(policy="raise", max_dumps=0)):
        with pytest.raises(NonFiniteError):
            run(guard)
    assert run(NanGuardCfg(policy="reset_row", max_dumps=0)) == []
    assert run(NanGuardCfg(policy="reset_row", dump_dir="one")) == ["one"]
    assert run(NanGuardCfg(policy="reset_row", dump_dir="two", max_dumps=2)) == ["one", "two", "two"]


def test_offsets_of_the_other_actions_move_the_robot():
    for kind in (mdp.JointVelocityActionCfg, mdp.JointEffortActionCfg):
        plain, moved = (everything().with_({"actions.joint_pos": kind(offset=x)}) for x in (0.0, 0.2))
        assert _seen(plain) != _seen(moved)


CURVE = {"saturation_effort": 6.0, "velocity_limit": 1.5, "effort_limit": 4.0}
POSITION = {"stiffness": 2.0, "damping": 0.5, "offset": 0.1}


@pytest.mark.parametrize("field", [*CURVE, *POSITION, "effort offset"])
def test_a_field_of_a_motor_changes_what_it_gives(field: str):
    def seen(**changes: float) -> str:
        if field == "effort offset":
            action: Cfg = mdp.DcMotorEffortActionCfg(joint_names=("slider",), **CURVE, **changes)
        else:
            action = mdp.DcMotorPositionActionCfg(
                joint_names=("slider",), **{**CURVE, **POSITION, "scale": 4.0, **changes}
            )
        cfg = load_env_cfg("cartpole-balance", num_envs=3)
        return _seen(cfg.model_copy(update={"actions": {"force": action}}))

    name = field.removeprefix("effort ")
    assert seen() != seen(**{name: 1.25 * {**CURVE, **POSITION}[name]})


# ---------------------------------------------------------------- all fields are above


def _classes(annotation: object) -> Iterator[type[Cfg]]:
    if isinstance(annotation, type) and issubclass(annotation, Cfg):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)


def _reachable(root: type[Cfg]) -> set[type[Cfg]]:
    """Returns every config class of this project that can be a part of `root`, subclasses and bases included."""
    found: set[type[Cfg]] = set()
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        if cls in found or cls is Cfg or not cls.__module__.startswith(LAYERS):
            continue
        found.add(cls)
        waiting += cls.__subclasses__()
        waiting += [base for base in cls.__mro__[1:] if issubclass(base, Cfg)]
        for field in cls.model_fields.values():
            waiting += _classes(field.annotation)
    return found


def _fields() -> dict[str, type[Cfg]]:
    """Returns every field as `Class.field`, named after the class that declares or redeclares it."""
    for task in list_tasks():
        load_env_cfg(task.name)  # imports what the task is made of
    return {
        f"{cls.__name__}.{name}": cls
        for cls in _reachable(ManagerBasedRlEnvCfg)
        for name in cls.__annotations__
        if name in cls.model_fields
    }


def test_every_field_of_every_config_has_its_proof():
    abstract = {"TermCfg.func", "TermCfg.params"}  # proven of each kind of term
    kinds = ("Observation", "Reward", "Termination", "Event", "Curriculum", "Metrics")
    wanted = {name for name in _fields() if name not in abstract}
    wanted |= {f"{kind}TermCfg.{name}" for kind in kinds for name in ("func", "params")}
    assert {*CHANGES, *BREAKS, *ELSEWHERE} == wanted
    assert len([*CHANGES, *BREAKS, *ELSEWHERE]) == len(wanted)
    assert set(ELSEWHERE.values()) <= set(globals())


class _Reads(ast.NodeVisitor):
    """Collects the names of attributes that code reads, outside validators."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if "validator" not in " ".join(ast.unparse(one) for one in node.decorator_list):
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.isidentifier():
            self.names.add(node.value)  # for getattr


def test_every_field_is_read_somewhere_outside_its_validators():
    reads = _Reads()
    for layer in LAYERS:
        origin = inspect.getfile(sys.modules[layer])
        for path in Path(origin).parent.rglob("*.py"):
            reads.visit(ast.parse(path.read_text()))
    assert {name for name in _fields() if name.partition(".")[2] not in reads.names} == set()
