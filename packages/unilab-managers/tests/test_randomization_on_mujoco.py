"""Randomised models on the real engine: a thousand resets with everything on, seeds, geometry, exact identity."""

from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch
from event_support import distinct, event, robot_cfg, run
from manager_support import OFFSETS, group, ids, mujoco_cfg

from unilab_core import SceneEntityCfg
from unilab_core.writes import writes
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, mdp
from unilab_managers.mdp.events import reset_joints_by_offset, reset_root_state_uniform
from unilab_managers.mdp.joint_randomization import (
    randomize_actuator_gains,
    randomize_effort_limits,
    randomize_joint_armature,
    randomize_joint_damping,
    randomize_joint_friction,
)
from unilab_managers.mdp.randomization import (
    randomize_body_com,
    randomize_body_inertia,
    randomize_body_inertia_axes,
    randomize_body_mass,
    randomize_body_mass_and_inertia,
    randomize_geom_friction,
    randomize_geom_size,
    randomize_gravity,
)
from unisim import EntityCfg, SceneCfg
from unisim.contract import Declared
from unisim.factory import make_backend

BALL = SceneEntityCfg(geom_names=("toe",))
EVERYTHING = {
    "made": event(randomize_effort_limits, "startup", scale_range=(0.9, 1.1)),
    "load": event(
        randomize_body_mass,
        mass_range=(0.1, 0.5),
        operation="add",
        asset_cfg=SceneEntityCfg(body_names=("base",)),
    ),
    "density": event(randomize_body_mass_and_inertia, mass_range=(0.8, 1.25), distribution="log_uniform"),
    "com": event(randomize_body_com, offset_range={"x": (-0.02, 0.02), "z": (0.0, 0.01)}),
    "inertia": event(randomize_body_inertia, scale_range=(0.9, 1.1)),
    "axes": event(randomize_body_inertia_axes, angle_range={"yaw": (-0.1, 0.1)}),
    "friction": event(randomize_geom_friction, friction_range=(0.4, 1.2), asset_cfg=BALL),
    "size": event(randomize_geom_size, scale_range=(0.9, 1.1), asset_cfg=BALL),
    "armature": event(randomize_joint_armature, armature_range=(0.5, 2.0)),
    "damping": event(randomize_joint_damping, damping_range=(0.0, 0.1), operation="add"),
    "dry": event(randomize_joint_friction, friction_range=(0.01, 0.2), operation="abs"),
    "gains": event(randomize_actuator_gains, kp_range=(0.8, 1.2), kd_range=(0.5, 1.5)),
    "gravity": event(randomize_gravity, offset_range={"z": (-0.5, 0.5)}),
    "joints": event(reset_joints_by_offset, **OFFSETS),
    "root": event(
        reset_root_state_uniform,
        pose_range={"x": (-1.0, 1.0), "yaw": (-3.0, 3.0)},
        velocity_range={"z": (-0.5, 0.5)},
    ),
}
# Field to the lowest and highest change of the robot's own elements: a factor, or an offset where the nominal may be 0.
FACTORS = {
    "body_inertia": (0.8 * 0.9, 1.25 * 1.1),
    "dof_armature": (0.5, 2.0),
    "actuator_forcerange": (0.9, 1.1),
}


def model(env: ManagerBasedRlEnv) -> dict[str, torch.Tensor]:
    """Returns what the rows of the robot hold of every declared field, (N, ...) float32."""
    data, rows = env.scene["robot"].data, torch.arange(env.num_envs)
    return {field: data.model_values(field, rows) for field in env.declared.model_fields}


def check_ranges(now: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> None:
    """Checks every field against its range around the model's own value; slack for float32."""

    def within(values: torch.Tensor, low: Any, high: Any) -> None:
        slack = 1e-5 * (1.0 + values.abs())
        assert bool((values >= low - slack).all())
        assert bool((values <= high + slack).all())

    for field, (low, high) in FACTORS.items():
        chosen = own[field] != 0.0
        factor = (now[field] / own[field])[chosen.expand_as(now[field])]
        within(factor, low, high)
        assert bool((now[field] == 0.0)[~chosen.expand_as(now[field])].all())
    load = torch.tensor([1.0, 0.0, 0.0])
    within(now["body_mass"], (own["body_mass"] + 0.1 * load) * 0.8, (own["body_mass"] + 0.5 * load) * 1.25)
    moved = now["body_ipos"] - own["body_ipos"]
    within(moved, torch.tensor([-0.02, 0.0, 0.0]), torch.tensor([0.02, 0.0, 0.01]))
    turned = 2.0 * torch.arccos((now["body_iquat"] * own["body_iquat"]).sum(dim=-1).abs().clamp(max=1.0))
    within(turned, 0.0, 0.1 + 1e-3)
    toe = own["geom_friction"].shape[1] - 1
    within(now["geom_friction"][:, toe, 0], 0.4, 1.2)
    within(now["geom_size"][:, toe, 0] / own["geom_size"][:, toe, 0], 0.9, 1.1)
    for field in ("geom_friction", "geom_size"):
        kept = torch.ones_like(now[field], dtype=torch.bool)
        kept[:, toe, 0] = False
        assert torch.equal(now[field][kept], own[field].expand_as(now[field])[kept])
    within((now["dof_damping"] - own["dof_damping"])[:, 6:], 0.0, 0.1)
    assert bool((now["dof_damping"][:, :6] == 0.0).all())
    within(now["dof_frictionloss"][:, 6:], 0.01, 0.2)
    assert bool((now["dof_frictionloss"][:, :6] == 0.0).all())
    within(now["actuator_gainprm"][..., 0] / own["actuator_gainprm"][..., 0], 0.8, 1.2)
    assert torch.equal(now["actuator_biasprm"][..., 1], -now["actuator_gainprm"][..., 0])
    within(now["actuator_biasprm"][..., 2] / own["actuator_biasprm"][..., 2], 0.5, 1.5)
    within(now["gravity"], torch.tensor([0.0, 0.0, -10.31]), torch.tensor([0.0, 0.0, -9.31]))


def own_values(env: ManagerBasedRlEnv) -> dict[str, torch.Tensor]:
    """Returns the model's own values of the robot's elements, (1, ...) float32, from the layout alone."""
    layout = env.model_layout
    found = {}
    for field in env.declared.model_fields:
        values = layout.fields[field].nominal_tensor()[None]
        names = {"body": layout.bodies, "geom": layout.geoms}.get(field.partition("_")[0])
        if names is not None:
            values = values[:, [i for i, name in enumerate(names) if name.startswith("robot/")]]
        found[field] = values
    return found


def baseline(env: ManagerBasedRlEnv) -> dict[str, torch.Tensor]:
    """Returns what randomisation starts from, copies."""
    values = env.state_dict()["values"]
    found = {path: value.clone() for path, value in values.items() if path.startswith("_model_baseline")}
    assert len(found) == len(env.declared.model_fields)
    return found


def test_a_thousand_resets_stay_in_range_and_the_stored_values_do_not_change() -> None:
    cfg = robot_cfg(EVERYTHING, num_envs=8, episode_length_s=0.04)
    with ManagerBasedRlEnv(cfg, seed=3) as env:
        env.reset()
        own, stored = own_values(env), baseline(env)
        limits = model(env)["actuator_forcerange"]  # of startup: no reset changes them
        resets, factors = 0, []
        while resets < 1000:
            state = env.step(torch.zeros(8, env.num_actions))
            resets += int((state.terminated | state.truncated).sum())
            if resets % 16 == 8:
                env.reset(ids(1, 6))
                resets += 2
            now = model(env)
            check_ranges(now, own)
            factors.append(now["dof_armature"][:, 6:] / own["dof_armature"][:, 6:])
        assert torch.equal(model(env)["actuator_forcerange"], limits)
        for path, values in baseline(env).items():
            assert torch.equal(values, stored[path]), path
        # After more than a hundred episodes of each row the range is still filled, and no wider.
        late = torch.stack(factors[-len(factors) // 2 :])
        assert [float(late.min()), float(late.max())] == pytest.approx([0.5, 2.0], abs=0.05)


def test_identity_ranges_leave_the_engines_model_and_motion_to_the_bit() -> None:
    still = {
        "density": event(randomize_body_mass_and_inertia, mass_range=(1.0, 1.0)),
        "com": event(randomize_body_com, offset_range={"x": (0.0, 0.0)}),
        "axes": event(randomize_body_inertia_axes, angle_range={"yaw": (0.0, 0.0)}),
        "friction": event(randomize_geom_friction, friction_range=(1.0, 1.0), operation="scale"),
        "size": event(randomize_geom_size, scale_range=(1.0, 1.0)),
        "armature": event(randomize_joint_armature, armature_range=(0.0, 0.0), operation="add"),
        "gains": event(randomize_actuator_gains, kp_range=(1.0, 1.0), kd_range=(1.0, 1.0)),
        "limits": event(randomize_effort_limits, scale_range=(1.0, 1.0)),
        "gravity": event(randomize_gravity, offset_range={}),
    }
    frames = []
    for events in (still, {}):
        with ManagerBasedRlEnv(robot_cfg(events, num_envs=2, episode_length_s=9.0)) as env:
            env.reset()
            run(env, 60)  # it falls onto the floor and bounces
            env.reset(ids(1))
            run(env, 30)
            frames.append(torch.cat([env.state_column("qpos"), env.state_column("qvel")], dim=1).clone())
    assert torch.equal(*frames)


# What each term changes of a fall onto the floor with the leg driven; every one must be felt by the engine.
FELT = {name: term for name, term in EVERYTHING.items() if name not in ("joints", "root")}


@pytest.mark.parametrize("name", FELT)
def test_every_randomisation_moves_the_physics(name: str) -> None:
    frames = []
    for events in ({name: FELT[name]}, {}):
        with ManagerBasedRlEnv(robot_cfg(events, num_envs=2, episode_length_s=9.0), seed=5) as env:
            env.reset()
            for _ in range(60):
                env.step(torch.full((2, 2), 1.5))
            frames.append(env.state_column("qpos").clone())
    changed = (frames[0] - frames[1]).abs().amax(dim=1)
    assert bool((changed > 1e-6).all())
    assert not torch.equal(frames[0][0], frames[0][1])  # each row its own


@writes("geom_size")
def grow_row_one(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    randomize_geom_size(env, env_ids[env_ids == 1], scale_range=(5.0, 5.0), asset_cfg=SPHERE)


SPHERE = SceneEntityCfg(geom_names=("sphere",))


def build_sphere() -> Any:
    """Returns a new spec of a sphere of 0.1 m radius held 0.3 m above a plane, on a slide joint across."""
    return mujoco.MjSpec.from_string("""
<mujoco><option gravity="0 0 0"/><worldbody><geom name="floor" type="plane" size="9 9 .1"/>
  <body name="ball" pos="0 0 .3"><joint name="slide" type="slide" axis="1 0 0"/><geom name="sphere" size=".1"/></body>
</worldbody><actuator><motor name="slide" joint="slide"/></actuator></mujoco>""")


def test_qa_058_a_geom_that_grows_collides_where_it_did_not(tmp_path: Path) -> None:
    cfg = mujoco_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_sphere)}),
        observations={"obs": group(position=ObservationTermCfg(func=mdp.joint_pos))},
        actions={"effort": mdp.JointEffortActionCfg()},
        events={"grow": EventTermCfg(func=grow_row_one, mode="reset")},
        num_envs=2,
    )
    declared = Declared(model_fields=("geom_size",), decimation=cfg.decimation)
    backend = make_backend("mujoco", cfg.scene, cfg.sim, num_envs=2, declared=declared)
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        env.reset()
        for row, (radius, gaps) in enumerate([(0.1, []), (0.5, [-0.2])]):
            path = tmp_path / f"{row}.mjb"
            path.write_bytes(backend.export_model(row))
            compiled = mujoco.MjModel.from_binary_path(str(path))
            ball = mujoco.mj_name2id(compiled, mujoco.mjtObj.mjOBJ_GEOM, "robot/sphere")
            assert compiled.geom_size[ball, 0] == pytest.approx(radius)
            assert compiled.geom_rbound[ball] == pytest.approx(radius)
            assert compiled.geom_aabb[ball, 3:].tolist() == pytest.approx([radius] * 3)
            data = mujoco.MjData(compiled)
            mujoco.mj_forward(compiled, data)
            assert [contact.dist for contact in data.contact] == pytest.approx(gaps)


def masses(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Builds an environment with startup masses and reset offsets: masses, reset observations, those 50 steps on."""
    events = {
        "mass": event(randomize_body_mass, "startup", mass_range=(0.5, 2.0)),
        "joints": event(reset_joints_by_offset, **OFFSETS),
    }
    with ManagerBasedRlEnv(robot_cfg(events, episode_length_s=9.0), seed=seed) as env:
        obs = env.reset()[0]["obs"]
        run(env, 50)
        return model(env)["body_mass"], obs, env.observations()["obs"]


def test_qa_077_startup_masses_follow_the_seed_whatever_else_draws_or_exists() -> None:
    first = masses(42)
    torch.rand(1000)
    with ManagerBasedRlEnv(robot_cfg(EVERYTHING), seed=1) as other:
        other.reset()
        second = masses(42)
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(masses(43)[0], first[0])
    assert distinct(first[0]) == first[0].numel()
