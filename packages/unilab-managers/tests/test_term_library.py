"""The term library has what a task needs, every term is on docs/terms.md, and every term has a test that uses it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from term_scripts import ROOT, terms

import unilab_managers
from unilab_managers import mdp

TERMS = {term.name: term.kind for term in terms.public_terms()}
PAGE = ROOT / "docs" / "terms.md"

WANTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "observation": {
        "base velocities in the body frame": ("base_lin_vel", "base_ang_vel"),
        "projected gravity": ("projected_gravity",),
        "joint position and velocity relative to default": ("joint_pos_rel", "joint_vel_rel"),
        "last and previous action": ("last_action", "previous_action"),
        "commands": ("generated_commands",),
        "foot contact, air time and height": ("foot_contact", "foot_air_time", "foot_height"),
        "named sensors": ("sensor",),
        "body poses": ("body_pos_b", "body_quat_b"),
        "gait phase": ("gait_phase",),
    },
    "action": {
        "joint position": ("JointPositionActionCfg",),
        "relative position": ("JointRelativePositionActionCfg",),
        "velocity": ("JointVelocityActionCfg",),
        "effort": ("JointEffortActionCfg",),
        "delayed": ("JointPositionActionCfg.delay_max_lag", "JointEffortActionCfg.delay_max_lag"),
        "DC motor with torque-speed limit": (
            "DcMotorPositionActionCfg.velocity_limit",
            "DcMotorEffortActionCfg.saturation_effort",
        ),
    },
    "command": {
        "velocity with heading and standing rows": (
            "UniformVelocityCommandCfg.heading",
            "UniformVelocityCommandCfg.rel_standing_envs",
        ),
        "pose": ("UniformPoseCommandCfg",),
        "resample on condition": ("UniformPoseCommandCfg.resample_when", "pose_reached"),
    },
    "reward": {
        "tracking of the linear velocity": ("track_lin_vel_xy_exp",),
        "tracking of the angular velocity": ("track_ang_vel_z_exp",),
        "upright": ("upright_exp", "flat_orientation_l2"),
        "height": ("base_height_exp", "base_height_l2"),
        "action rate and acceleration": ("action_rate_l2", "action_acc_l2"),
        "torque": ("joint_torques_l2",),
        "power": ("joint_power_l1",),
        "joint limits, velocity and acceleration": ("joint_pos_limits", "joint_vel_l2", "joint_acc_l2"),
        "posture": ("joint_posture_exp",),
        "air time": ("feet_air_time",),
        "clearance": ("feet_clearance",),
        "slip": ("feet_slip",),
        "soft landing": ("feet_soft_landing",),
        "gait phase": ("feet_gait",),
        "alive": ("is_alive",),
        "terminated": ("is_terminated",),
    },
    "termination": {
        "time-out": ("time_out",),
        "bad orientation": ("bad_orientation",),
        "height": ("root_height_below_minimum",),
        "illegal contact": ("illegal_contact",),
        "out of bounds": ("out_of_bounds",),
        "joint limits": ("joint_pos_out_of_limits",),
        "non-finite": ("non_finite",),
    },
    "event": {
        "reset to default": ("reset_to_default",),
        "root uniform": ("reset_root_state_uniform",),
        "joints by offset and by scale": ("reset_joints_by_offset", "reset_joints_by_scale"),
        "pushes": ("push_root",),
        "sustained wrench with cool-down": ("apply_body_wrench",),
    },
    "randomization": {
        "friction": ("randomize_geom_friction",),
        "mass": ("randomize_body_mass",),
        "com": ("randomize_body_com",),
        "inertia": ("randomize_body_inertia",),
        "gains": ("randomize_actuator_gains",),
        "motor strength": ("randomize_motor_strength",),
        "armature": ("randomize_joint_armature",),
        "damping": ("randomize_joint_damping",),
        "friction loss": ("randomize_joint_friction",),
        "encoder bias": ("randomize_encoder_bias",),
        "gravity": ("randomize_gravity",),
    },
    "curriculum": {
        "weights": ("reward_weight",),
        "parameters": ("reward_params", "event_params"),
        "ranges": ("command_velocity_ranges", "command_ranges_by_tracking"),
    },
    "metric": {"of actions, joints and ends": ("action_rate", "joint_speed", "ended_by")},
    "recorder": {"of whole episodes": ("EpisodeRecorder",)},
}
"""By kind, what a task asks the library for, and the terms, or settings of terms, that give it."""
LATENCY = {
    "JointPositionActionCfg": ("delay_min_lag", "delay_max_lag"),
    "ObservationTermCfg": ("delay_min_lag", "delay_max_lag", "delay_per_env"),
}
"""What randomises latency: settings, drawn per row, and no terms of their own."""
NEEDS = [(kind, need, given) for kind, needs in WANTED.items() for need, given in needs.items()]


@pytest.mark.parametrize(("kind", "need", "given"), NEEDS, ids=[f"{k}: {n}" for k, n, _ in NEEDS])
def test_what_a_task_needs_is_there_and_of_that_kind(kind: str, need: str, given: tuple[str, ...]):
    for name in given:
        term, _, setting = name.partition(".")
        assert TERMS.get(term) == kind
        assert not setting or setting in getattr(mdp, term).model_fields


def test_latency_is_drawn_by_actions_and_observations():
    for config, settings in LATENCY.items():
        owner = getattr(mdp, config, None) or getattr(unilab_managers, config)
        assert set(settings) <= set(owner.model_fields)


def test_the_page_has_one_line_for_every_term_and_none_for_anything_else():
    listed = re.findall(r"^\| `(\w+)\(", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(TERMS), "make it again: nox -s terms"


# ---------------------------------------------------------------- tests of terms


def _modules(tree: ast.Module) -> set[str]:
    """What a file calls the modules that hold terms: an attribute of anything else only shares a term's name."""
    sources = ("unilab_managers", "unilab_managers.mdp")
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module in sources]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _names(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """The names that a piece of code uses; strings, imports and fields of data are no use."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            yield inner.id
        elif isinstance(inner, ast.Attribute) and ast.unparse(inner.value) in modules:
            yield inner.attr


def _asserts(function: ast.FunctionDef, helpers: set[str]) -> bool:
    """Whether a function asserts something of values, or hands it to one of the tests' own functions that do.

    That something is refused says nothing of what a term computes.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in helpers:
            return True
    return False


def _assigned(target: ast.expr, value: ast.expr, modules: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Yields what is assigned, with the names that it stands for: `a, b = c, d` is two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its, modules)
    elif isinstance(target, ast.Name):
        yield target.id, set(_names(value, modules))


def _used_in_tests(path: Path) -> set[str]:
    """The names that tests of a file use: in one that asserts, or in what stands beside tests and one of them uses."""
    tree = ast.parse(path.read_text())
    modules = _modules(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    checking = {f.name for f in functions if _asserts(f, set())} | {"assert_close"}
    tests = [f for f in functions if f.name.startswith("test_") and _asserts(f, checking)]
    used = {name for test in tests for name in _names(test, modules)}
    beside = {f.name: set(_names(f, modules)) for f in functions if not f.name.startswith("test_")}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            beside.update(_assigned(node.targets[0], node.value, modules))
    while new := {name for taken in used & beside.keys() for name in beside[taken]} - used:
        used |= new
    return used


def test_every_term_is_used_by_a_test_that_asserts_something():
    used: set[str] = set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name not in (Path(__file__).name, "test_term_table.py"):
            used |= _used_in_tests(path)
    assert sorted(set(TERMS) - used) == []


def test_what_only_shares_a_name_or_is_only_refused_does_not_count(tmp_path: Path):
    path = tmp_path / "test_it.py"
    path.write_text(
        "from unilab_managers.mdp import imported, rewards as terms\n"
        "def helper(): return through_a_helper\n"
        "def unused(): return beside_a_test\n"
        "TABLE, Other = [in_a_table], beside_it\n"
        "def test_a(): assert helper() == TABLE and 'in_a_string'\n"
        "def test_b(): without_an_assertion()\n"
        "def test_c():\n"
        "    with raises(ValueError):\n"
        "        terms.only_refused()\n"
        "def test_d(): assert terms.of_the_library(data.a_field)\n"
    )
    wanted = {"helper", "TABLE", "through_a_helper", "in_a_table", "terms", "of_the_library", "data"}
    assert _used_in_tests(path) == wanted
