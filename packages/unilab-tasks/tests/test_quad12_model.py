"""The four-legged model is what its table says, mirrors itself, and stands."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest

from unilab_tasks.robots.ground import build_ground
from unilab_tasks.robots.quad12 import FEET, LEGS, build_quad12, quad12
from unilab_tasks.robots.quad12_tables import QUAD12_TABLES, Link
from unisim import EntityCfg, SceneCfg, SimCfg
from unisim.scene_model import compile_scene

TABLES = sorted(QUAD12_TABLES)
JOINTS = [f"{leg}_{kind}" for leg in LEGS for kind in ("hip", "thigh", "calf")]


def composed(**options: Any) -> tuple[Any, Any]:
    """The robot in its home pose over flat ground: model and data, controls at home."""
    entities = {"ground": EntityCfg(spec=build_ground), "robot": quad12(**options)}
    model, layout = compile_scene(SceneCfg(entities=entities), SimCfg())
    data = mujoco.MjData(model)
    data.qpos[:] = layout.default_qpos
    data.ctrl[:] = layout.default_qpos[7:]
    mujoco.mj_forward(model, data)
    return model, data


def touching(model: Any, data: Any) -> set[tuple[str, str]]:
    """Pairs of geoms in contact, without the entities' prefixes, in the order of the alphabet."""
    names = [[model.geom(g).name.split("/")[1] for g in pair] for pair in data.contact.geom]
    return {(min(pair), max(pair)) for pair in names}


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize(("table", "mass"), [("go1_like", 12.744), ("go2_like", 15.205)])
def test_the_whole_robot_weighs_what_its_original_does(table: str, mass: float):
    assert build_quad12(table).compile().body_mass.sum() == pytest.approx(mass, abs=5e-4)


@pytest.mark.parametrize("table", TABLES)
def test_joints_and_actuators_go_leg_by_leg_in_the_makers_order(table: str):
    model = build_quad12(table).compile()
    assert [model.joint(i).name for i in range(model.njnt)] == ["root", *JOINTS]
    assert [model.actuator(i).name for i in range(model.nu)] == JOINTS
    assert [model.joint(int(j)).name for j in model.actuator_trnid[:, 0]] == JOINTS
    assert [model.site(i).name for i in range(model.nsite)] == ["imu", *FEET]


@pytest.mark.parametrize("table", TABLES)
def test_links_joints_and_motors_have_the_numbers_of_the_table(table: str):
    numbers, model = QUAD12_TABLES[table], build_quad12(table).compile()
    trunk = model.body("trunk")
    assert trunk.mass[0] == numbers.trunk_mass
    assert trunk.ipos.tolist() == list(numbers.trunk_com)
    assert trunk.pos.tolist() == [0.0, 0.0, numbers.home_height]
    principal = sorted(trunk.inertia.tolist())
    assert principal == pytest.approx(sorted(numbers.trunk_inertia), rel=1e-12)
    for leg in LEGS:
        x, y = (1.0 if leg[0] == "F" else -1.0), (1.0 if leg[1] == "L" else -1.0)
        thigh_range = numbers.front_thigh_range if leg[0] == "F" else numbers.rear_thigh_range
        expected: dict[str, tuple[Link, float, tuple[float, float], int]] = {
            "hip": (numbers.hip, x, numbers.hip_range, 0),
            "thigh": (numbers.thigh, 1.0, thigh_range, 1),
            "calf": (numbers.calf, 1.0, numbers.calf_range, 2),
        }
        for kind, (link, sign, limits, i) in expected.items():
            name = f"{leg}_{kind}"
            body, joint, actuator = model.body(name), model.joint(name), model.actuator(name)
            assert body.mass[0] == link.mass
            assert body.pos.tolist() == [sign * link.offset[0], y * link.offset[1], link.offset[2]]
            assert body.ipos.tolist() == [sign * link.com[0], y * link.com[1], link.com[2]]
            assert sorted(body.inertia.tolist()) == pytest.approx(sorted(link.inertia), rel=1e-12)
            assert joint.range.tolist() == list(limits)
            assert joint.axis.tolist() == ([1.0, 0.0, 0.0] if kind == "hip" else [0.0, 1.0, 0.0])
            dof = int(joint.dofadr[0])
            assert model.dof_armature[dof] == numbers.armature[i]
            assert model.dof_frictionloss[dof] == model.dof_damping[dof] == 0.0
            assert actuator.forcerange.tolist() == [-numbers.torque[i], numbers.torque[i]]
            assert actuator.ctrlrange.tolist() == list(limits)


@pytest.mark.parametrize("table", TABLES)
def test_shapes_have_the_sizes_of_the_table(table: str):
    numbers, model = QUAD12_TABLES[table], build_quad12(table).compile()
    assert model.geom("trunk").size.tolist() == list(numbers.trunk_half_size)
    assert model.geom("head").pos[0] == numbers.head[0]
    assert model.geom("head").size[0] == numbers.head[1]
    radii = {"hip": numbers.hip_radius, "thigh": numbers.thigh_radius, "calf": numbers.calf_radius}
    for leg in LEGS:
        assert {kind: model.geom(f"{leg}_{kind}").size[0] for kind in radii} == radii
        foot = model.geom(f"{leg}_foot")
        assert foot.size[0] == numbers.foot_radius
        assert foot.pos.tolist() == model.site(f"{leg}_foot").pos.tolist() == list(numbers.foot_offset)
    assert set(model.geom_group.tolist()) == {3}


def test_no_value_of_a_table_is_without_effect():
    """Changing any field of either table changes the model, or the pose that an episode begins in."""

    def seen(table: str) -> object:
        return build_quad12(table).to_xml(), quad12(table).joint_pos

    for name, numbers in QUAD12_TABLES.items():
        before = seen(name)
        for field, value in vars(numbers).items():
            QUAD12_TABLES[name] = replace(numbers, **{field: _other(value)})
            try:
                assert seen(name) != before, field
            finally:
                QUAD12_TABLES[name] = numbers


def _other(value: Any) -> Any:
    if isinstance(value, Link):
        return replace(value, mass=value.mass + 0.5)
    if isinstance(value, dict):
        return {**value, "FR_hip": 0.25}
    return value + 0.01 if isinstance(value, float) else (value[0] + 0.01, *value[1:])


@pytest.mark.parametrize("table", TABLES)
def test_the_gains_are_those_asked_for_and_by_default_those_that_stand(table: str):
    for options, kp, kd in (({}, 35.0, 1.0), ({"kp": 20.0, "kd": 0.5}, 20.0, 0.5)):
        model = build_quad12(table, **options).compile()
        assert model.actuator_gainprm[:, 0].tolist() == [kp] * 12
        assert model.actuator_biasprm[:, :3].tolist() == [[0.0, -kp, -kd]] * 12


@pytest.mark.parametrize(
    ("table", "digest"),
    [
        ("go1_like", "c1e657fce8d7d928"),
        ("go2_like", "95528099581b1395"),
    ],
)
def test_the_model_has_not_changed_by_accident(table: str, digest: str):
    """A change on purpose changes the digest here, and is worth a line in the changelog: policies depend on it."""
    model = build_quad12(table).compile()
    numbers = np.concatenate([
        np.asarray(getattr(model, name), dtype=np.float64).ravel()
        for name in (
            *("body_mass", "body_inertia", "body_pos", "body_ipos", "jnt_range", "jnt_axis", "dof_armature"),
            *("geom_size", "geom_pos", "geom_friction", "geom_contype", "geom_conaffinity", "geom_condim"),
            *("geom_priority", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
            *("actuator_ctrlrange", "site_pos", "qpos0"),
        )
    ])  # fmt: skip
    text = " ".join(f"{value:.6g}" for value in numbers + 0.0)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_a_wrong_table_or_level_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="table is 'go1'; .*'go1_like'"):
        build_quad12("go1")
    with pytest.raises(ValueError, match="table is 'go3_like'"):
        quad12("go3_like")
    with pytest.raises(ValueError, match="collision is 'terrian'; .*'terrain'"):
        build_quad12(collision="terrian")


# ---------------------------------------------------------------- symmetry


@pytest.mark.parametrize("table", TABLES)
def test_the_left_side_mirrors_the_right(table: str):
    model = build_quad12(table).compile()
    flip = np.array([1.0, -1.0, 1.0])
    for end in "FR":
        for kind in ("hip", "thigh", "calf"):
            right, left = model.body(f"{end}R_{kind}"), model.body(f"{end}L_{kind}")
            assert (right.pos * flip).tolist() == left.pos.tolist()
            assert (right.ipos * flip).tolist() == left.ipos.tolist()
            assert right.inertia.tolist() == left.inertia.tolist()
        assert quad12(table).joint_pos.get(".R_hip", 0.0) == -quad12(table).joint_pos.get(".L_hip", 0.0)
    shift = QUAD12_TABLES[table].trunk_com[1]
    assert shift == (0.002 if table == "go1_like" else 0.0)  # the only thing that is not in the middle


# ---------------------------------------------------------------- contacts


@pytest.mark.parametrize("table", TABLES)
def test_a_robot_at_home_touches_the_ground_with_its_feet(table: str):
    model, data = composed(table=table)
    for _ in range(400):
        mujoco.mj_step(model, data)
    assert touching(model, data) == {(foot, "ground") for foot in FEET}


def test_the_default_gains_hold_the_home_pose_for_ten_seconds():
    model, data = composed()
    for _ in range(2000):
        mujoco.mj_step(model, data)
    tilt = math.degrees(math.acos(data.body("robot/trunk").xmat[8]))
    # Measured: height 0.257 m, tilt 3.6 degrees, at rest.
    assert data.qpos[2] == pytest.approx(0.257, abs=2e-3)
    assert tilt == pytest.approx(3.6, abs=0.3)
    assert np.abs(data.qvel[:3]).max() < 1e-3
    assert data.ncon == 4


def fallen(collision: str) -> tuple[Any, Any]:
    """A robot that was dropped upside down and has come to rest."""
    model, data = composed(collision=collision)
    data.qpos[3:7] = [0.0, 1.0, 0.0, 0.0]
    for _ in range(400):
        mujoco.mj_step(model, data)
    return model, data


def test_with_feet_only_a_fallen_robot_sinks_through_the_ground_and_by_default_it_does_not():
    assert fallen("feet")[1].qpos[2] < -0.1
    model, data = fallen("terrain")
    assert data.qpos[2] > 0.04  # half of the trunk's height is 0.05 m
    assert ("ground", "trunk") in touching(model, data) or ("ground", "head") in touching(model, data)


def test_only_at_the_full_level_do_legs_touch_each_other():
    crossed = {("FL_thigh", "FR_thigh")}
    for collision, expected in (("feet", set()), ("terrain", set()), ("full", crossed)):
        model, data = composed(collision=collision)
        data.qpos[2] = 1.0
        for leg, inwards in (("FR", 0.863), ("FL", -0.863)):
            data.joint(f"robot/{leg}_hip").qpos[0] = inwards
            data.joint(f"robot/{leg}_thigh").qpos[0] = 0.45 * 0.888
            data.joint(f"robot/{leg}_calf").qpos[0] = -0.888
        mujoco.mj_forward(model, data)
        assert touching(model, data) == expected


def test_friction_is_the_feets_own_whatever_they_stand_on():
    model, data = composed(foot_friction=0.3)
    assert {float(c.friction[0]) for c in data.contact if c.dim == 3} == {0.3}
    assert {int(c.dim) for c in composed(foot_condim=6)[1].contact} == {1, 6}
    assert model.geom("robot/FR_foot").condim[0] == 3
    others = [
        g
        for g in range(model.ngeom)
        if model.geom(g).name.startswith("robot/") and "foot" not in model.geom(g).name
    ]
    assert {int(model.geom_condim[g]) for g in others} == {1}
