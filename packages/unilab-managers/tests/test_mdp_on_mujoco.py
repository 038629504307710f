"""Terms on a real engine, where physics decides: tilted frames, slopes, sliding and dropped feet, geared motors."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import pytest
import torch
from manager_support import build_slider, group, mujoco_cfg, zeros

from unilab_core import SceneEntityCfg
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    MetricsTermCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unisim import ContactSensorCfg, EntityCfg, SceneCfg, SimCfg

RADIUS, MASS, G = 0.05, 2.0, 9.81
FOOT = SceneEntityCfg(site_names=("foot",))
CONTACT: dict[str, Any] = {"sensor_names": ("foot_contact",)}
WITH_SITE: dict[str, Any] = {**CONTACT, "asset_cfg": FOOT}


def build_ball() -> Any:
    """Returns a ball that moves freely, a site in its middle, another off it, and a motor that pushes a small slide."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    ball = spec.worldbody.add_body(name="ball")
    ball.add_freejoint(name="root")
    ball.add_geom(name="foot", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[RADIUS, 0, 0], mass=MASS, condim=1)
    ball.add_site(name="foot")
    ball.add_site(name="off", pos=[0.3, 0.0, 0.1], quat=[0.5, 0.5, 0.5, 0.5])
    inner = ball.add_body(name="inner")
    inner.add_joint(name="slide", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1], range=[-0.01, 0.01])
    inner.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.01, 0, 0], mass=0.001, contype=0, conaffinity=0)
    spec.add_actuator(name="slide", target="slide", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    return spec


def build_slope(tilt: float = 0.0) -> Any:
    """Returns a plane through the origin that falls towards +x by `tilt` rad, without friction."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    quat = [math.cos(tilt / 2), 0.0, math.sin(tilt / 2), 0.0]
    body = spec.worldbody.add_body(name="slope", quat=quat)
    body.add_geom(name="slope", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], condim=1)
    return spec


@contextmanager
def ball_env(
    pos: tuple[float, float, float],
    *,
    tilt: float = 0.0,
    substeps: bool = False,
    gravity: float = G,
    data: tuple[Any, ...] = ("found", "force", "normal"),
    reduce: Any = "mindist",
    velocity: dict[str, tuple[float, float]] | None = None,
    **cfg: Any,
) -> Iterator[ManagerBasedRlEnv]:
    """Makes a ball above a plane, 50 Hz with four substeps, reset."""
    sensor = ContactSensorCfg(
        name="foot_contact", of="geom", target="robot/foot", data=data, reduce=reduce, substeps=substeps
    )
    settings: dict[str, Any] = {
        "scene": SceneCfg(
            entities={
                "ground": EntityCfg(spec=build_slope, params={"tilt": tilt}),
                "robot": EntityCfg(spec=build_ball, pos=pos),
            },
            sensors=(sensor,),
        ),
        "sim": SimCfg(timestep=0.005, num_threads=1, gravity=(0.0, 0.0, -gravity)),
        "decimation": 4,
        "episode_length_s": 100.0,
        "num_envs": 1,
        "observations": {"obs": group(height=ObservationTermCfg(func=mdp.base_height))},
        "actions": {"effort": mdp.JointEffortActionCfg()},
        "rewards": {},
        "scale_rewards_by_dt": False,
        "terminations": {},
        "events": {
            "place": EventTermCfg(
                func=mdp.reset_root_state_uniform,
                mode="reset",
                params={"pose_range": {}, "velocity_range": velocity or {}},
            )
        },
    }
    with ManagerBasedRlEnv(ManagerBasedRlEnvCfg(**(settings | cfg))) as env:
        env.reset()
        yield env


def reward(func: Any, **params: Any) -> dict[str, RewardTermCfg]:
    return {"term": RewardTermCfg(func=func, weight=1.0, params=params)}


def test_a_site_on_a_spinning_body_is_seen_as_it_is_fixed_to_it() -> None:
    off = {"asset_cfg": SceneEntityCfg(site_names=("off",))}
    terms = {
        "pos": ObservationTermCfg(func=mdp.body_pos_b, params=off),
        "quat": ObservationTermCfg(func=mdp.body_quat_b, params=off),
        "vel": ObservationTermCfg(func=mdp.body_lin_vel_b, params=off),
        "spin": ObservationTermCfg(func=mdp.body_ang_vel_b, params=off),
    }
    spin = {
        axis: (value, value) for axis, value in (("roll", 1.0), ("pitch", 2.0), ("yaw", -3.0), ("x", 0.5))
    }
    with ball_env((0.0, 0.0, 9.0), velocity=spin, gravity=0.0, observations={"obs": group(**terms)}) as env:
        for _ in range(20):
            env.step(zeros(env))
        data, row = env.scene["robot"].data, env.observations()["obs"][0]
        assert data.projected_gravity_b[0, 2].abs() < 0.95  # well turned by now
        rate = data.root_ang_vel_b[0]
        offset = torch.tensor([0.3, 0.0, 0.1])
        velocity = data.root_lin_vel_b[0] + torch.linalg.cross(rate, offset)
        expected = torch.cat([offset, torch.full((4,), 0.5), velocity, rate])
        torch.testing.assert_close(row, expected, rtol=0.0, atol=2e-5)


def test_a_falling_foot_is_in_the_air_until_it_lands_and_then_touches() -> None:
    drop = 0.5
    terms = {
        "contact": ObservationTermCfg(func=mdp.foot_contact, params=CONTACT),
        "air": ObservationTermCfg(func=mdp.foot_air_time, params=CONTACT),
        "stance": ObservationTermCfg(func=mdp.foot_contact_time, params=CONTACT),
    }
    with ball_env((0.0, 0.0, RADIUS + drop), observations={"obs": group(**terms)}) as env:
        rows = [env.step(zeros(env)).obs["obs"][0].tolist() for _ in range(30)]
        landing = [contact for contact, _, _ in rows].index(1.0)
        fall = math.sqrt(2.0 * drop / G)
        assert abs((landing + 1) * 0.02 - fall) <= 0.02 + 0.005
        assert rows[landing - 1] == pytest.approx([0.0, landing * 0.02, 0.0])
        assert rows[landing] == pytest.approx([1.0, 0.0, 0.02])
        assert rows[-1] == pytest.approx([1.0, 0.0, (30 - landing) * 0.02])
        env.reset()
        assert env.observations()["obs"].tolist() == [
            [0.0, 0.0, 0.0]
        ]  # back in the air, nothing left of before


def test_a_foot_that_a_reset_puts_on_a_slope_touches_it_at_once_and_has_not_landed() -> None:
    tilt = math.radians(30.0)
    height = (RADIUS - 1e-4) / math.cos(tilt)
    terms = {"contact": ObservationTermCfg(func=mdp.foot_contact, params=CONTACT)}
    with ball_env(
        (0.0, 0.0, height),
        tilt=tilt,
        observations={"obs": group(**terms)},
        rewards=reward(mdp.feet_soft_landing, **CONTACT),
    ) as env:
        assert env.observations()["obs"].tolist() == [[1.0]]
        assert env.step(zeros(env)).reward.item() == 0.0
        assert env.observations()["obs"].tolist() == [[1.0]]


def test_a_foot_slides_down_a_slope_with_its_whole_speed() -> None:
    tilt = math.radians(30.0)
    height = (RADIUS - 1e-4) / math.cos(tilt)
    with ball_env(
        (0.0, 0.0, height),
        tilt=tilt,
        rewards=reward(mdp.feet_slip, **WITH_SITE),
        metrics={"slip": MetricsTermCfg(func=mdp.feet_slip_speed, params=WITH_SITE, reduce="last")},
    ) as env:
        for _ in range(25):
            state = env.step(zeros(env))
        speed = G * math.sin(tilt) * 0.5
        assert state.reward.item() == pytest.approx(speed**2, rel=0.02)
        assert env.metrics_manager._values.item() == pytest.approx(speed, rel=0.01)
        velocity = env.scene["robot"].data.root_lin_vel_w[0]
        horizontal = velocity[:2].square().sum().item()
        assert horizontal == pytest.approx(
            (speed * math.cos(tilt)) ** 2, rel=0.02
        )  # what a flat view would miss


def test_a_foot_that_stands_does_not_slip_and_one_in_the_air_does_not_either() -> None:
    with ball_env((0.0, 0.0, RADIUS), rewards=reward(mdp.feet_slip, **WITH_SITE)) as env:
        assert max(env.step(zeros(env)).reward.item() for _ in range(5)) < 1e-6
    thrown = {"x": (3.0, 3.0)}
    with ball_env((0.0, 0.0, 5.0), velocity=thrown, rewards=reward(mdp.feet_slip, **WITH_SITE)) as env:
        assert [env.step(zeros(env)).reward.item() for _ in range(5)] == [0.0] * 5


@pytest.mark.parametrize(
    ("data", "reduce"), [(("found", "force", "normal"), "mindist"), (("found", "force"), "netforce")]
)
def test_a_foot_that_falls_from_higher_lands_harder_once(data: tuple[Any, ...], reduce: Any) -> None:
    hits: list[float] = []
    for drop in (0.05, 0.2):
        seen: list[float] = []
        peaks: list[float] = []
        with ball_env(
            (0.0, 0.0, RADIUS + drop),
            substeps=True,
            data=data,
            reduce=reduce,
            rewards=reward(mdp.feet_soft_landing, **CONTACT),
        ) as env:
            for _ in range(30):
                seen.append(env.step(zeros(env)).reward.item())
                history = env.scene.sensor_history("foot_contact")
                peaks.append(history[0, :, 1:4].norm(dim=-1).max().item())
        (landing,) = [i for i, value in enumerate(seen) if value > 0.0]
        assert seen[landing] == pytest.approx(peaks[landing])
        assert peaks[-1] == pytest.approx((MASS + 0.001) * G, rel=0.05)  # at rest, which costs nothing
        hits.append(seen[landing])
    assert hits[1] > 1.5 * hits[0] > 3.0 * MASS * G


@pytest.mark.parametrize("tilt", [0.0, math.radians(30.0)])
def test_forces_of_contacts_are_those_along_the_normal_of_what_carries_the_weight(tilt: float) -> None:
    weight = (MASS + 0.001) * G * math.cos(tilt)
    terms = {
        "over": RewardTermCfg(
            func=mdp.undesired_contacts, weight=1.0, params={**CONTACT, "threshold": 0.95 * weight}
        ),
        "under": RewardTermCfg(
            func=mdp.undesired_contacts, weight=10.0, params={**CONTACT, "threshold": 1.05 * weight}
        ),
        "excess": RewardTermCfg(
            func=mdp.contact_forces, weight=100.0, params={**CONTACT, "limit": 0.5 * weight}
        ),
    }
    height = RADIUS / math.cos(tilt)  # above the origin of a plane that falls away
    with ball_env((0.0, 0.0, height - 1e-4), tilt=tilt, rewards=terms) as env:
        for _ in range(40):
            value = env.step(zeros(env)).reward.item()
    assert value == pytest.approx(1.0 + 100.0 * 0.5 * weight, rel=0.02)


@pytest.mark.parametrize("substeps", [False, True])
def test_a_hard_landing_is_illegal_and_standing_is_not(substeps: bool) -> None:
    limits = {"hard": 3.0, "harder": 100.0}
    terms = {
        name: TerminationTermCfg(func=mdp.illegal_contact, params={**CONTACT, "threshold": factor * MASS * G})
        for name, factor in limits.items()
    }
    landed = None
    with ball_env((0.0, 0.0, RADIUS + 0.3), substeps=substeps, terminations=terms) as env:
        for i in range(14):
            hit = env.step(zeros(env)).terminated.item()
            assert not env.termination_manager.get_term("harder").item()
            if hit:
                landed = i
                break
    # 0.3 m take 0.247 s, which are 12.4 control steps. Without its substeps the impact may be over when it is seen.
    assert landed in ((12,) if substeps else (12, 13, None))


def test_joint_terms_of_the_last_substep_are_those_of_the_engine() -> None:
    terms = {
        "torque": RewardTermCfg(func=mdp.joint_torques_l2, weight=1.0),
        "power": RewardTermCfg(func=mdp.joint_power_l1, weight=1.0),
        "acceleration": RewardTermCfg(func=mdp.joint_acc_l2, weight=1.0),
    }
    robot = EntityCfg(spec=build_slider, params={"limit": 5.0})
    with ManagerBasedRlEnv(
        mujoco_cfg(
            scene=SceneCfg(entities={"robot": robot}),
            rewards=terms,
            scale_rewards_by_dt=False,
            decimation=1,
            episode_length_s=9.0,
        )
    ) as env:
        env.reset()
        action = torch.tensor([[1.0, 0.25]]).repeat(4, 1)
        for _ in range(5):
            before = env.scene["robot"].data.joint_vel.clone()
            env.step(action)
        now = env.scene["robot"].data.joint_vel
        forces = torch.tensor([5.0, 0.25])
        shown = {
            name: values for name, values in zip(terms, env.reward_manager._values.unbind(dim=1), strict=True)
        }
        torch.testing.assert_close(shown["torque"], forces.square().sum().expand(4))
        torch.testing.assert_close(shown["power"], (forces * now).abs().sum(dim=1))
        # One substep a step, and nothing implicit in it: what the velocity has gained is the acceleration's.
        acceleration = (now - before) / env.step_dt
        torch.testing.assert_close(
            shown["acceleration"], acceleration.square().sum(dim=1), rtol=1e-3, atol=1e-3
        )


def test_the_power_of_a_geared_motor_is_force_at_its_joint_times_speed() -> None:
    metrics = {
        "power": MetricsTermCfg(func=mdp.mechanical_power, reduce="last"),
        "torque": MetricsTermCfg(func=mdp.joint_torque, reduce="last"),
    }
    robot = EntityCfg(spec=build_slider, params={"limit": 5.0})
    with ManagerBasedRlEnv(
        mujoco_cfg(scene=SceneCfg(entities={"robot": robot}), metrics=metrics, episode_length_s=9.0)
    ) as env:
        env.reset()
        action = torch.tensor([[1.0, 0.25]]).repeat(4, 1)
        for _ in range(5):
            env.step(action)
        speed = env.scene["robot"].data.joint_vel
        # Half of the slider's action, geared by 10; the hinge's motor has no gear.
        expected = torch.stack([5.0 * speed[:, 0] + 0.25 * speed[:, 1], torch.full((4,), 2.625)], dim=1)
        torch.testing.assert_close(env.metrics_manager._values, expected)
