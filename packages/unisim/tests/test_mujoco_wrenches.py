"""Wrench columns of the control: a force in the world at the centre of mass, and a torque."""

from __future__ import annotations

import math

import pytest
import torch
from leg_model import leg_backend
from unisim_support import free_box, from_xml, hopper, reset_rows

from unisim import EntityCfg, HostBridgeSpec, NonFiniteError, SceneCfg, SimCfg, make_backend
from unisim.contract import Declared

DT = 0.004
BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def space(build=free_box, num_envs: int = 2, bodies=("robot/box",), persistent: bool = True, **params):
    """A model without gravity whose bodies can be pushed."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build, params=params)})
    sim = SimCfg(timestep=DT, gravity=(0.0, 0.0, 0.0), num_threads=1, persistent=persistent)
    return make_backend("mujoco", scene, sim, num_envs=num_envs, declared=Declared(wrench_bodies=bodies))


@BOTH
def test_a_force_over_one_step_is_f_dt_over_m_along_its_axis(persistent):
    backend = space(persistent=persistent)
    backend.step_tensor(torch.tensor([[10.0, -20.0, 5.0, 0.0, 0.0, 0.0], [0.0] * 6]))
    qvel = backend.get_state_views()["qvel"]
    wanted = [10.0 * DT / 5.0, -20.0 * DT / 5.0, 5.0 * DT / 5.0, 0.0, 0.0, 0.0]
    assert qvel[0].tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert not qvel[1].any()


def test_a_torque_over_one_step_is_t_dt_over_i():
    backend = space()
    backend.step_tensor(torch.tensor([[0.0, 0.0, 0.0, 1.0, 2.0, 3.0], [0.0] * 6]))
    # Half sizes .1 .2 .3, 5 kg: I = 5/3 * (b^2 + c^2) about each axis.
    inertia = [5.0 / 3.0 * s for s in (0.04 + 0.09, 0.01 + 0.09, 0.01 + 0.04)]
    wanted = [t * DT / i for t, i in zip((1.0, 2.0, 3.0), inertia, strict=True)]
    assert backend.get_state_views()["qvel"][0, 3:].tolist() == pytest.approx(wanted, rel=1e-5)
    assert not backend.get_state_views()["qvel"][0, :3].any()


def test_axes_are_those_of_the_world_also_when_the_body_is_turned():
    backend = space()
    half = math.sqrt(0.5)
    reset_rows(backend, [0, 1], qpos=[[0.0, 0.0, 1.0, half, 0.0, 0.0, half]] * 2)  # by 90 degrees about z
    backend.step_tensor(torch.tensor([[10.0, 0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0, 0]]))
    qvel = backend.get_state_views()["qvel"]
    assert qvel[0, :3].tolist() == pytest.approx([10.0 * DT / 5.0, 0.0, 0.0], abs=1e-8)
    # The world's x is the body's -y; the engine's angular velocity is in the body's frame.
    assert qvel[1, 3:].tolist() == pytest.approx([0.0, -DT / (5.0 / 3.0 * 0.10), 0.0], abs=1e-8)


def test_a_force_acts_at_the_centre_of_mass_and_turns_nothing():
    xml = """<mujoco><worldbody><body name="box" pos="0 0 1"><freejoint/>
      <geom type="box" size=".1 .1 .1" pos=".5 0 0" mass="2"/></body></worldbody></mujoco>"""
    backend = space(from_xml, xml=xml)
    backend.step_tensor(torch.tensor([[0.0, 4.0, 0.0, 0.0, 0.0, 0.0]] * 2))
    qvel = backend.get_state_views()["qvel"][0].tolist()
    assert qvel == pytest.approx([0.0, 4.0 * DT / 2.0, 0.0, 0.0, 0.0, 0.0], abs=1e-8)


def test_it_acts_during_every_substep_and_only_while_it_is_given():
    backend = space()
    backend.step_tensor(torch.tensor([[5.0, 0, 0, 0, 0, 0]] * 2), 4)
    assert backend.get_state_views()["qvel"][0, 0].item() == pytest.approx(4 * DT, rel=1e-6)
    backend.step_tensor(torch.zeros(2, 6), 4)
    assert backend.get_state_views()["qvel"][0, 0].item() == pytest.approx(4 * DT, rel=1e-6)


@BOTH
def test_a_reset_clears_it_before_the_reads_of_the_reset(persistent):
    xml = """<mujoco><worldbody><body name="box" pos="0 0 1"><freejoint/><geom size=".1" mass="2"/>
      <site name="s"/></body></worldbody><sensor><accelerometer name="acc" site="s"/></sensor></mujoco>"""
    backend = space(from_xml, xml=xml, persistent=persistent)
    backend.step_tensor(torch.tensor([[4.0, 0, 0, 0, 0, 0]] * 2))
    acc = backend.get_sensor_view("robot/acc")
    assert acc[:, 0].tolist() == pytest.approx([2.0, 2.0])
    reset_rows(backend, [1])
    acc = backend.get_sensor_view("robot/acc")
    assert acc[:, 0].tolist() == pytest.approx([2.0, 0.0])
    assert not backend.get_state_views()["qvel"][1].any()


def test_several_bodies_have_six_columns_each_in_the_order_of_the_model():
    backend = space(hopper, bodies=("robot/shank", "robot/base"))
    assert backend.declared.wrench_bodies == ("robot/base", "robot/shank")
    ctrl = torch.zeros(2, 3 + 12)
    ctrl[0, 3 : 3 + 3] = torch.tensor([0.0, 0.0, 1.0])  # the base
    ctrl[1, 3 + 6 : 3 + 9] = torch.tensor([0.0, 0.0, 1.0])  # the shank
    backend.step_tensor(ctrl)
    qvel = backend.get_state_views()["qvel"]
    momentum = backend.get_state_views()["qvel"][:, 2]
    assert (momentum > 0).all()
    assert abs(qvel[1, 7].item()) > 10.0 * abs(qvel[0, 7].item())  # the knee turns when the shank is pulled


def test_a_wrench_equals_the_engine_s_own_applied_force():
    backend = leg_backend(2, declared=Declared(wrench_bodies=("robot/shank",)))
    other = leg_backend(2)
    shank = other.model_layout.bodies.index("robot/shank")
    generator = torch.Generator().manual_seed(4)
    for _ in range(30):
        ctrl = torch.rand(2, 9, generator=generator) * 2.0 - 1.0
        other._batch.bind("xfrc_applied")[:, shank] = ctrl[:, 3:].numpy()
        backend.step_tensor(ctrl, 4)
        other.step_tensor(ctrl[:, :3].contiguous(), 4)
        assert torch.equal(backend.snapshot()["state"], other.snapshot()["state"])


@pytest.mark.parametrize(
    ("patterns", "resolved"),
    [
        (("robot/.*sh.*",), ("robot/shank",)),
        (("robot/shank", "robot/.*"), ("robot/base", "robot/thigh", "robot/shank")),
        ((".*", "robot/base"), ("robot/base", "robot/thigh", "robot/shank")),  # all that can be pushed
        (("robot/(base|shank)", "robot/shank"), ("robot/base", "robot/shank")),
        ((), ()),
    ],
)
def test_wrench_bodies_are_names_or_patterns_resolved_in_model_order(patterns, resolved):
    backend = space(hopper, bodies=patterns)
    assert backend.declared.wrench_bodies == resolved
    with pytest.raises(ValueError, match=rf"expected contiguous \(2, {3 + 6 * len(resolved)}\)"):
        backend.step_tensor(torch.zeros(2, 99))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("robot/shnak", "wrench body 'robot/shnak' matches no body; did you mean 'robot/shank'"),
        (
            "shank",
            "wrench body 'shank' matches no body; did you mean 'robot/shank'",
        ),  # the whole name must match
        ("world", "wrench body 'world' matches no body"),
        ("robot/(", r"wrench body 'robot/\(' is neither a body nor a regular expression: "),
    ],
)
def test_a_pattern_that_matches_no_body_is_answered_with_the_nearest(pattern, message):
    with pytest.raises(KeyError, match=f"MuJoCoBackend: {message}"):
        space(hopper, bodies=("robot/base", pattern))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_wrench_that_is_not_finite_is_rejected_before_physics_moves(value):
    backend = space()
    backend.step_tensor(torch.ones(2, 6))
    before = backend.snapshot()
    ctrl = torch.zeros(2, 6)
    ctrl[1, 4] = value
    with pytest.raises(NonFiniteError, match=r"control of rows \[1\] is not finite; physics has not moved"):
        backend.step_tensor(ctrl)
    assert all(torch.equal(values, before[key]) for key, values in backend.snapshot().items())


def test_the_control_packet_carries_its_columns():
    backend = leg_backend(2, declared=Declared(wrench_bodies=("robot/base", "robot/shank")))
    plan = backend.compile_host_bridge_io(HostBridgeSpec())
    with pytest.raises(ValueError, match=r"ctrl has shape \(2, 3\) on cpu, expected \(2, 15\)"):
        plan.write_control(torch.zeros(2, 3))
    plan.write_control(torch.zeros(2, 15))
    assert plan.transfer_stats.control.bytes == 4 * 2 * (3 + 2 * 6)
    plan.step(1)
    assert plan.read().shape == (2, 9 + 8 + 3)  # the control that is read back has no wrench
