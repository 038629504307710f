"""Model fields per row: a row with other values is a simulation of the model compiled with them, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from leg_model import FIELDS, leg_backend
from leg_values import changed, nominal
from unisim_support import free_box, from_xml, pendulum, reset_rows, rows_mask

from unisim import (
    ContactSensorCfg,
    EntityCfg,
    ResetPayload,
    ResetRejectedError,
    SceneCfg,
    SimCfg,
    make_backend,
)
from unisim.contract import Declared

BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def controls(steps: int, num_envs: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(num_envs, 3, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


def everything(backend) -> torch.Tensor:
    """State in engine precision and all sensors in float32, (N, ...) float64."""
    saved = backend.snapshot()
    return torch.cat([saved["state"], saved["sensordata"]], dim=1)


def reset_model(backend, rows: list[int], **fields: torch.Tensor) -> None:
    model = {name: values.expand(len(rows), *values.shape).contiguous() for name, values in fields.items()}
    backend.apply_reset(rows_mask(rows, backend.num_envs), ResetPayload(torch.tensor(rows), model=model))


@BOTH
@pytest.mark.parametrize("name", FIELDS)
def test_a_reset_row_equals_a_compiled_model_and_other_rows_a_twin(name, persistent):
    options = {"persistent": persistent, "declared": Declared((name,))}
    backend, twin = leg_backend(3, **options), leg_backend(3, **options)
    compiled = leg_backend(3, model={name: changed(name)}, persistent=persistent)
    for ctrl in controls(20, 3):
        for each in (backend, twin, compiled):
            each.step_tensor(ctrl, 4)
    reset_model(backend, [1], **{name: changed(name)})
    for each in (twin, compiled):
        reset_rows(each, [1])
    differs = torch.tensor(False)
    for step, ctrl in enumerate([None, *controls(50, 3, seed=1)]):
        for each in (backend, twin, compiled) if ctrl is not None else ():
            each.step_tensor(ctrl, 4)
        values = everything(backend)
        assert torch.equal(values[1], everything(compiled)[1]), (step, "the model compiled with the values")
        assert torch.equal(values[[0, 2]], everything(twin)[[0, 2]]), (step, "the rows of the twin")
        differs |= (values[1] != everything(twin)[1]).any()
    assert differs, "the field had no effect"
    for each in (backend, twin, compiled):
        each.close()


@BOTH
def test_all_fields_at_once_and_written_twice_are_as_written_once(persistent):
    options = {"persistent": persistent, "declared": Declared(FIELDS)}
    backend, twin = leg_backend(3, **options), leg_backend(3, **options)
    values = {name: changed(name) for name in FIELDS}
    for _ in range(3):
        reset_model(backend, [1, 2], **values)
    reset_model(twin, [1, 2], **values)
    for ctrl in controls(30, 3):
        for each in (backend, twin):
            each.step_tensor(ctrl, 4)
    assert torch.equal(everything(backend), everything(twin))


@BOTH
def test_identity_values_are_exact_to_the_bit_also_where_float32_is_not(persistent):
    # The default friction (1, 0.005, 0.0001) and a mass of 0.1 kg have no float32 of their own.
    xml = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="box" pos="0 0 .3"><freejoint/>
      <geom name="g" type="box" size=".1 .07 .05" mass=".1"/></body></worldbody></mujoco>"""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})})
    sim = SimCfg(timestep=0.004, num_threads=1, persistent=persistent)
    fields = ("body_mass", "geom_friction", "geom_size", "gravity")
    inertial = (
        *fields,
        "body_inertia",
        "body_iquat",
        "body_ipos",
    )  # compiled without a shortcut for simple bodies
    for written, declared in ((fields, ()), (inertial, inertial)):
        backend, twin = (
            make_backend("mujoco", scene, sim, num_envs=2, declared=Declared(names))
            for names in (written, declared)
        )
        layout = backend.model_layout
        assert layout.fields["body_mass"].nominal[1] != float(layout.fields["body_mass"].nominal_tensor()[1])
        reset_model(backend, [1], **{name: layout.fields[name].nominal_tensor() for name in written})
        reset_rows(twin, [1])
        for _ in range(50):
            for each in (backend, twin):
                each.step_tensor(torch.zeros(2, 0), 4)
            assert torch.equal(backend.snapshot()["state"], twin.snapshot()["state"])


def test_a_row_keeps_its_values_through_a_reset_that_gives_none():
    backend = leg_backend(2, declared=Declared(("gravity",)))
    reset_model(backend, [1], gravity=torch.zeros(3))
    reset_rows(backend, [1])
    backend.step_tensor(torch.zeros(2, 3), 1)
    qvel = backend.get_state_views()["qvel"]
    assert qvel[0, 2].item() != 0.0
    assert qvel[1, 2].item() == 0.0


@BOTH
def test_a_row_write_changes_model_fields_of_its_row_and_keeps_its_state(persistent):
    options = {"persistent": persistent, "declared": Declared(("body_mass", "gravity"))}
    backend, twin = leg_backend(3, **options), leg_backend(3, **options)
    for ctrl in controls(20, 3):
        for each in (backend, twin):
            each.step_tensor(ctrl, 4)
    before = backend.snapshot()
    values = {name: changed(name).unsqueeze(0) for name in ("body_mass", "gravity")}
    backend.write_rows(rows_mask([1], 3), ResetPayload(torch.tensor([1]), model=values))
    after = backend.snapshot()
    assert torch.equal(after["state"], before["state"])
    assert torch.equal(after["sensordata"][:, 9:], before["sensordata"][:, 9:])  # of acceleration stage
    # The engine measures velocities from the centre of mass, which moved: another rounding, not another value.
    torch.testing.assert_close(after["sensordata"], before["sensordata"], rtol=1e-12, atol=1e-12)
    for ctrl in controls(20, 3, seed=1):
        for each in (backend, twin):
            each.step_tensor(ctrl, 4)
    now, other = everything(backend), everything(twin)
    assert torch.equal(now[[0, 2]], other[[0, 2]])
    assert not torch.equal(now[1], other[1])


def test_after_a_row_write_of_fields_the_row_goes_on_as_the_compiled_model():
    # A free fall without contact holds no warm start, so that the same state under another model is the same future.
    backend = leg_backend(2, declared=Declared(("gravity", "body_mass")))
    compiled = leg_backend(2, model={"body_mass": changed("body_mass")})
    high = torch.tensor(backend.model_layout.default_qpos)
    high[2] = 50.0
    for each in (backend, compiled):
        reset_rows(each, [0, 1], qpos=[high.tolist()] * 2)
    model = {"body_mass": changed("body_mass").expand(1, -1)}
    backend.write_rows(rows_mask([1], 2), ResetPayload(torch.tensor([1]), model=model))
    for ctrl in controls(10, 2):
        for each in (backend, compiled):
            each.step_tensor(ctrl, 4)
    assert torch.equal(backend.get_state_views()["qpos"][1], compiled.get_state_views()["qpos"][1])


# ---------------------------------------------------------------- what a field does and does not do


def box(*fields: str, sim: SimCfg | None = None, num_envs: int = 2, **options):
    scene = SceneCfg(entities={"robot": EntityCfg(spec=free_box)})
    sim = sim or SimCfg(timestep=0.004, gravity=(0.0, 0.0, 0.0), num_threads=1)
    declared = Declared(fields, wrench_bodies=("robot/box",), **options)
    return make_backend("mujoco", scene, sim, num_envs=num_envs, declared=declared)


def test_qa_054_a_mass_alone_leaves_the_inertia_as_it_is():
    # 1 N and 1 N m for 4 ms: dv = dt * F / m halves, dw = dt * T / I stays. I_x = 5/3 * (0.2^2 + 0.3^2).
    backend = box("body_mass")
    reset_model(backend, [1], body_mass=torch.tensor([0.0, 10.0]))
    backend.step_tensor(torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]] * 2))
    qvel = backend.get_state_views()["qvel"]
    assert qvel[:, 0].tolist() == pytest.approx([0.004 / 5.0, 0.004 / 10.0], rel=1e-6)
    assert qvel[:, 3].tolist() == pytest.approx([0.004 / (5.0 / 3.0 * 0.13)] * 2, rel=1e-6)


def test_qa_054_an_inertia_that_is_scaled_too_halves_the_rotation():
    backend = box("body_mass", "body_inertia")
    inertia = backend.model_layout.fields["body_inertia"].nominal_tensor() * 2.0
    reset_model(backend, [1], body_mass=torch.tensor([0.0, 10.0]), body_inertia=inertia)
    backend.step_tensor(torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]] * 2))
    omega = backend.get_state_views()["qvel"][:, 3]
    assert omega[1].item() == pytest.approx(0.5 * omega[0].item(), rel=1e-6)


def test_qa_052_the_same_factor_at_five_resets_is_one_factor():
    backend = box("body_mass")
    for _ in range(5):
        reset_model(backend, [1], body_mass=torch.tensor([0.0, 5.0]) * 1.1)
    backend.step_tensor(torch.tensor([[5.5, 0.0, 0.0, 0.0, 0.0, 0.0]] * 2))
    assert backend.get_state_views()["qvel"][1, 0].item() == pytest.approx(0.004, rel=1e-6)  # 5.5 N on 5.5 kg


@BOTH
def test_qa_058_a_larger_sphere_is_found_by_the_broad_phase(persistent):
    # A sphere of 0.5 m at 0.3 m penetrates the plane by 0.2 m; one of 0.1 m touches nothing.
    xml = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="ball" pos="0 0 .3"><freejoint/>
      <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/><geom name="g" type="sphere" size=".1"/></body>
      </worldbody></mujoco>"""
    contact = ContactSensorCfg(name="c", target="robot/ball", data=("found", "dist"), reduce="mindist")
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}, sensors=(contact,))
    sim = SimCfg(num_threads=1, persistent=persistent)
    backend = make_backend("mujoco", scene, sim, num_envs=2, declared=Declared(("geom_size",)))
    size = backend.model_layout.fields["geom_size"].nominal_tensor()
    size[1, 0] = 0.5
    reset_model(backend, [1], geom_size=size)
    assert backend.get_sensor_view("c")[0].tolist() == [0.0, 0.0]
    assert backend.get_sensor_view("c")[1].tolist() == pytest.approx([1.0, -0.2], abs=1e-6)


def test_the_default_control_still_holds_the_pose_under_other_gains():
    # The documented control is the actuator's length; with gain and stiffness scaled alike it holds the pose.
    backend = leg_backend(2, declared=Declared(("actuator_gainprm", "actuator_biasprm")))
    gain, bias = (nominal(name).clone() for name in ("actuator_gainprm", "actuator_biasprm"))
    gain[0, 0], bias[0, 1] = 64.0, -64.0
    qpos = torch.tensor(backend.model_layout.default_qpos)
    qpos[7] = 0.25
    model = {"actuator_gainprm": gain.unsqueeze(0), "actuator_biasprm": bias.unsqueeze(0)}
    payload = ResetPayload(torch.tensor([1]), qpos=qpos.unsqueeze(0), model=model)
    backend.apply_reset(rows_mask([1], 2), payload)
    assert backend.get_state_views()["ctrl"][1].tolist() == [0.25, 0.0, 0.0]
    assert backend.get_sensor_view("robot/torque")[1].item() == pytest.approx(0.0, abs=1e-6)


# ---------------------------------------------------------------- what is refused


def wrong(name: str) -> dict[str, torch.Tensor]:
    good = nominal(name)
    cases = {}
    for value in (math.nan, math.inf, -math.inf):
        cases[str(value)] = good.clone()
        cases[str(value)].view(-1)[-1] = value
    if name in ("body_mass", "geom_friction", "geom_size", "dof_armature", "dof_damping", "dof_frictionloss"):
        cases["negative"] = good.clone()
        cases["negative"].view(-1)[-1] = -0.5
    if name == "body_mass":
        cases["zero"] = good * 0.0
        cases["a world with mass"] = good + 1.0
    if name == "geom_size":
        cases["zero"] = good * 0.0
    if name == "body_inertia":
        cases["triangle"] = good.clone()
        cases["triangle"][1] = torch.tensor([1.0, 1.0, 2.5])
        cases["negative"] = -good
    if name == "body_iquat":
        cases["not unit"] = good * 1.01
    if name == "actuator_forcerange":
        cases["upside down"] = good.flip(-1)
    cases["a shape too large"] = torch.zeros(good.numel() + 1)
    cases["float64"] = good.double()
    return cases


@pytest.mark.parametrize("name", FIELDS)
def test_an_unphysical_value_is_rejected_before_anything_is_written(name):
    backend = leg_backend(3, declared=Declared(FIELDS))
    for ctrl in controls(10, 3):
        backend.step_tensor(ctrl, 4)
    before = backend.snapshot()
    for what, values in wrong(name).items():
        model = {"gravity": torch.ones(2, 3)} if name != "gravity" else {}
        model[name] = torch.stack([values, values])
        payload = ResetPayload(torch.tensor([0, 2]), qvel=torch.ones(2, 8), model=model)
        for call in (backend.apply_reset, backend.write_rows):
            with pytest.raises(ResetRejectedError, match=rf"{name}.*; nothing was written$"):
                call(rows_mask([0, 2], 3), payload)
        after = backend.snapshot()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[key], before[key]) for key in before), what


@pytest.mark.parametrize("name", ["dof_damping", "body_pos", "qpos"])
def test_a_field_that_was_not_declared_is_rejected(name):
    backend = leg_backend(2, declared=Declared(("body_mass",)))
    before = backend.snapshot()
    values = torch.ones(1, *(backend.model_layout.fields[name].shape if name == "dof_damping" else (9,)))
    for call in (backend.apply_reset, backend.write_rows):
        with pytest.raises(ResetRejectedError, match=f"model field '{name}' was not declared"):
            call(rows_mask([1], 2), ResetPayload(torch.tensor([1]), model={name: values}))
    assert all(torch.equal(value, before[key]) for key, value in backend.snapshot().items())


def test_a_mass_may_change_on_a_body_that_the_compiler_calls_simple(simulate):
    scene = SceneCfg(entities={"robot": EntityCfg(spec=pendulum)})
    backend = make_backend("mujoco", scene, SimCfg(), num_envs=1, declared=Declared(("body_ipos",)))
    values = backend.model_layout.fields["body_ipos"].nominal_tensor()
    values[1, 0] = 0.25
    reset_model(backend, [0], body_ipos=values)
    backend.step_tensor(torch.zeros(1, 1))
    assert backend.get_state_views()["qvel"][0, 0].item() != 0.0  # off the axis, gravity turns it


def test_the_layout_tells_the_shape_and_nominal_values_of_every_field():
    fields = leg_backend(1).model_layout.fields
    assert set(fields) == set(FIELDS)
    assert fields["body_mass"].nominal == (0.0, 4.0, 0.5, 0.25)
    assert fields["gravity"].nominal == (0.0, 0.0, -9.8125)
    assert {name: field.shape for name, field in fields.items()} == {
        "body_mass": (4,),
        "body_ipos": (4, 3),
        "body_iquat": (4, 4),
        "body_inertia": (4, 3),
        "geom_friction": (5, 3),
        "geom_size": (5, 3),
        "dof_armature": (8,),
        "dof_damping": (8,),
        "dof_frictionloss": (8,),
        "actuator_gainprm": (3, 10),
        "actuator_biasprm": (3, 10),
        "actuator_forcerange": (3, 2),
        "gravity": (3,),
    }
