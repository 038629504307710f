"""What both kinds of fake share: dynamics, fields, wrenches, records, snapshots and faults; and where they differ."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from unisim_support import reset_rows, rows_mask, write_rows

from unisim import CapabilityError, HostBridgeSpec, ResetPayload, ResetRejectedError, TensorExecution
from unisim.contract import Declared
from unisim.randomization import FieldLayout
from unisim.testing import FakeBackend, Fault, make_layout

KINDS = {kind.value: kind for kind in TensorExecution}
LAYOUT = make_layout(
    sensors={"imu": (1, "velocity"), "force": (1, "acceleration")}, free_root=True, timestep=0.5
)
DECLARED = Declared(
    ("body_mass", "dof_damping", "actuator_gainprm", "gravity"),
    ("robot/base",),
    ("imu", "force"),
    decimation=2,
)
SLIDER, ROOT = 6, slice(0, 3)  # velocity columns


@pytest.fixture(params=KINDS)
def make(request):
    """Makes fakes of one kind."""

    def build(num_envs: int = 2, layout=LAYOUT, declared=DECLARED, **options):
        return FakeBackend(layout, num_envs, execution=KINDS[request.param], declared=declared, **options)

    return build


def qvel(backend, column=SLIDER) -> list:
    return backend.get_state_views()["qvel"][:, column].tolist()


def push(backend, slider: float = 0.0, **wrench: float) -> torch.Tensor:
    ctrl = torch.zeros(backend.num_envs, 7)
    ctrl[:, 0] = slider
    for axis, value in wrench.items():
        ctrl[:, 1 + "xyz".index(axis)] = value
    return ctrl


def test_a_fake_of_either_kind_is_a_fake(make):
    fake = make()
    assert isinstance(fake, FakeBackend)
    assert fake.tensor_execution() is fake.get_tensor_capabilities().execution


def test_both_kinds_move_alike():
    fakes = [FakeBackend(LAYOUT, 3, execution=kind, declared=DECLARED) for kind in TensorExecution]
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        ctrl = torch.rand(3, 7, generator=generator)
        for fake in fakes:
            fake.step_tensor(ctrl, 2)
    for name, values in fakes[0].get_state_views().items():
        torch.testing.assert_close(values, fakes[1].get_state_views()[name], rtol=1e-5, atol=1e-6)


def test_a_subclass_keeps_its_kind_and_its_own_methods():
    class Counting(FakeBackend):
        steps = 0

        def _advance(self, ctrl, nsteps):
            self.steps += 1
            super()._advance(ctrl, nsteps)

    for kind in TensorExecution:
        fake = Counting(LAYOUT, 2, execution=kind)
        fake.step_tensor(torch.zeros(2, 1))
        assert (fake.steps, fake.tensor_execution()) == (1, kind)
    host = Counting(LAYOUT, 2)
    plan = host.compile_host_bridge_io(HostBridgeSpec())
    plan.write_control(torch.zeros(2, 1))
    plan.step(3)
    assert host.steps == 1


# ---------------------------------------------------------------- dynamics and model fields


def model(backend, row: int, **fields: list) -> None:
    values = {name: torch.tensor([value], dtype=torch.float32) for name, value in fields.items()}
    backend.apply_reset(rows_mask([row], backend.num_envs), ResetPayload(torch.tensor([row]), model=values))


def test_a_gain_scales_the_control(make):
    fake = make()
    model(fake, 1, actuator_gainprm=[[3.0, *[0.0] * 9]])
    fake.step_tensor(push(fake, 2.0))
    assert qvel(fake) == [1.0, 3.0]  # 0.5 s * gain * 2


def test_a_mass_divides_the_force_of_a_wrench(make):
    fake = make()
    model(fake, 1, body_mass=[0.0, 4.0])
    fake.step_tensor(push(fake, x=2.0, z=-4.0))
    assert qvel(fake, ROOT) == [[1.0, 0.0, -2.0], [0.25, 0.0, -0.5]]


def test_gravity_accelerates_a_free_root_and_damping_slows_every_joint(make):
    fake = make()
    model(fake, 1, gravity=[0.0, 0.0, -10.0], dof_damping=[0.0] * 6 + [0.5, 0.0])
    write_rows(fake, [0, 1], qvel=[[0.0] * 6 + [1.0, 1.0]] * 2)
    fake.step_tensor(push(fake))
    assert qvel(fake, ROOT) == [[0.0, 0.0, 0.0], [0.0, 0.0, -5.0]]
    assert qvel(fake, slice(6, 8)) == [[1.0, 1.0], [0.75, 1.0]]


def test_a_layout_without_fields_is_a_plain_double_integrator(make):
    fake = make(layout=dataclasses.replace(LAYOUT, fields={}), declared=Declared((), ("robot/base",)))
    fake.step_tensor(push(fake, 2.0, x=1.0))
    assert qvel(fake) == [1.0, 1.0]
    assert qvel(fake, 0) == [0.5, 0.5]


def test_a_field_without_effect_is_kept_and_restored(make):
    layout = make_layout(
        geoms=("floor",), fields={"geom_friction": FieldLayout((1, 3), (1.0, 0.005, 0.0001))}
    )
    fake = make(layout=layout, declared=Declared(("geom_friction",)))
    saved = fake.snapshot()
    model(fake, 1, geom_friction=[[0.5, 0.5, 0.5]])
    assert fake.snapshot()["field:geom_friction"][:, 0, 0].tolist() == [1.0, 0.5]
    fake.restore(saved)
    assert fake.snapshot()["field:geom_friction"][:, 0, 0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body_mas": FieldLayout((1,), (1.0,))}, "'body_mas' is no model field; expected one of"),
        ({"body_mass": FieldLayout((3,), (1.0,))}, r"'body_mass' has 1 values, expected 3 for shape \(3,\)"),
    ],
)
def test_a_layout_of_fields_that_do_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        make_layout(fields=fields)


def test_a_wrench_acts_only_in_its_step_and_a_reset_clears_it(make):
    fake = make()
    fake.step_tensor(push(fake, x=2.0))
    reset_rows(fake, [1])
    assert qvel(fake, 0) == [1.0, 0.0]
    fake.step_tensor(push(fake))
    assert qvel(fake, 0) == [1.0, 0.0]


def test_what_was_not_declared_cannot_be_done(make):
    with pytest.raises(KeyError, match="wrench body 'robot/bas' matches no body; did you mean 'robot/base'"):
        make(declared=Declared(wrench_bodies=("robot/bas",)))
    fake = make(declared=Declared())
    with pytest.raises(ResetRejectedError, match="model field 'gravity' was not declared"):
        model(fake, 0, gravity=[0.0, 0.0, 0.0])
    with pytest.raises(CapabilityError, match=r"substep history of \['imu'\] was not declared"):
        fake.get_state_views(["substep:imu"])


# ---------------------------------------------------------------- reads, records, scripts


def count(substep, state):
    return {"sensor:force": torch.full_like(state["sensor:force"], float(substep))}


def test_the_record_of_a_step_is_oldest_first_and_empty_after_a_reset(make):
    fake = make(script=count)
    assert fake.get_state_views(["substep:force"])["substep:force"].tolist() == [[0.0, 0.0]] * 2
    fake.step_tensor(push(fake), 2)
    fake.step_tensor(push(fake), 2)
    assert fake.get_state_views(["substep:force"])["substep:force"].tolist() == [[3.0, 4.0]] * 2
    reset_rows(fake, [1])
    assert fake.get_state_views(["substep:force"])["substep:force"].tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_a_step_of_another_length_makes_a_host_record_as_long_and_shifts_a_resident_one():
    host, resident = (
        FakeBackend(LAYOUT, 1, execution=kind, declared=DECLARED, script=count)
        for kind in (TensorExecution.HOST_BRIDGE, TensorExecution.DEVICE_RESIDENT)
    )
    for fake in (host, resident):
        fake.step_tensor(push(fake), 3)
    assert host.get_state_views(["substep:force"])["substep:force"].tolist() == [[1.0, 2.0, 3.0]]
    assert resident.get_state_views(["substep:force"])["substep:force"].tolist() == [[2.0, 3.0]]
    plan = host.compile_host_bridge_io(HostBridgeSpec(substep_sensors=("force",), decimation=2))
    with pytest.raises(
        ValueError, match="'substep:force' holds 3 columns, the plan reads 2; step by the plan's"
    ):
        plan.read()


def derived(state):
    return {
        "sensor:imu": state["qvel"][:, SLIDER : SLIDER + 1],
        "sensor:force": state["ctrl"] + state["qvel"][:, SLIDER : SLIDER + 1],
        "body:robot/base": torch.cat([state["qpos"][:, :7], state["qvel"][:, :6]], dim=1),
    }


def test_derived_reads_are_fresh_from_the_start_and_after_all_that_changes_the_state(make):
    fake = make(reads=derived)
    base = fake.get_state_views(["body:robot/base"])["body:robot/base"]
    assert base[0].tolist() == [0.0] * 3 + [1.0] + [0.0] * 9
    fake.step_tensor(push(fake, 2.0))
    assert fake.get_sensor_view("imu").tolist() == [[1.0], [1.0]]
    assert fake.get_sensor_view("force").tolist() == [[3.0], [3.0]]
    reset_rows(fake, [1], qvel=[[0.0] * 6 + [5.0, 0.0]])
    assert fake.get_sensor_view("imu").tolist() == [[1.0], [5.0]]
    assert fake.get_sensor_view("force").tolist() == [[3.0], [5.0]]  # the control of the reset is 0
    write_rows(fake, [0], qvel=[[0.0] * 6 + [7.0, 0.0]])
    assert fake.get_sensor_view("imu").tolist() == [[7.0], [5.0]]
    assert fake.get_sensor_view("force").tolist() == [[3.0], [5.0]]  # still of the last substep


def test_views_of_a_host_fake_are_copies_and_those_of_a_resident_one_are_its_storage(make):
    fake = make()
    live = fake.tensor_execution() is TensorExecution.DEVICE_RESIDENT
    keys = ("qpos", "qvel", "ctrl", "body:robot/base", "substep:imu", "sensor:imu")
    views = fake.get_state_views(keys)
    addresses = [values.data_ptr() for values in views.values()]
    assert all(values.dtype == torch.float32 for values in views.values())
    fake.step_tensor(push(fake, 2.0), 2)
    reset_rows(fake, [0])
    fake.restore(fake.snapshot())
    again = [values.data_ptr() for values in fake.get_state_views(keys).values()]
    assert (addresses == again) == live
    assert views["qvel"][:, SLIDER].tolist() == ([0.0, 2.0] if live else [0.0, 0.0])
    assert (fake.get_sensor_view("imu").data_ptr() == views["sensor:imu"].data_ptr()) == live


def test_a_resident_fake_has_no_plan():
    fake = FakeBackend(LAYOUT, 2, execution=TensorExecution.DEVICE_RESIDENT)
    with pytest.raises(CapabilityError, match="DEVICE_RESIDENT views are live, there is nothing to bridge"):
        fake.compile_host_bridge_io(HostBridgeSpec())
    capabilities = fake.get_tensor_capabilities()
    assert (capabilities.data_plane, capabilities.process_topology) == ("views", "learner_process")
    assert capabilities.accepted_devices == ("cpu",)


def test_a_resident_fake_neutralises_a_bad_control_and_names_its_row_until_the_reset():
    fake = FakeBackend(LAYOUT, 3, execution=TensorExecution.DEVICE_RESIDENT, declared=DECLARED)
    ctrl = push(fake, 2.0)
    ctrl[1, 3] = float("nan")
    given = ctrl.clone()
    fake.step_tensor(ctrl)
    assert qvel(fake) == [1.0, 0.0, 1.0]
    assert fake.get_state_views()["ctrl"][:, 0].tolist() == [2.0, 0.0, 2.0]
    assert (
        torch.equal(
            ctrl,
            given,
        )
        or ctrl[1, 3].isnan()
    )
    fake.step_tensor(push(fake))
    assert fake.bad_rows().tolist() == [False, True, False]
    reset_rows(fake, [1])
    assert fake.bad_rows().tolist() == [False, False, False]


def test_a_fake_that_was_stepped_in_inference_mode_steps_outside_of_it(make):
    fake = make()
    with torch.inference_mode():
        fake.step_tensor(push(fake), 3)
        fake.restore(fake.snapshot())
    fake.step_tensor(push(fake), 3)
    reset_rows(fake, [0])


def test_payloads_on_another_device_are_rejected(make):
    fake = make()
    payload = ResetPayload(torch.tensor([1]), qvel=torch.zeros(1, 8, device="meta"))
    for call in (fake.apply_reset, fake.write_rows):
        with pytest.raises(ResetRejectedError, match="qvel is on meta, expected cpu; nothing was written"):
            call(rows_mask([1], 2), payload)


# ---------------------------------------------------------------- snapshots


def test_a_snapshot_continues_with_script_faults_fields_and_records(make):
    def build():
        return make(script=count, faults=[Fault("nan", at=8, row=1)])

    fake, other = build(), build()
    model(fake, 1, actuator_gainprm=[[3.0, *[0.0] * 9]])
    fake.step_tensor(push(fake, 1.0, x=1.0), 2)
    fake.step_tensor(push(fake, 1.0), 4)
    other.restore(fake.snapshot())
    for each in (fake, other):
        each.step_tensor(push(each, 2.0), 4)
    one, two = fake.snapshot(), other.snapshot()
    assert one.keys() == two.keys()
    assert all(torch.equal(v.nan_to_num(nan=7e7), two[k].nan_to_num(nan=7e7)) for k, v in one.items())
    assert other.bad_rows().tolist() == [False, True]
    assert other.get_sensor_view("force").tolist() == [[10.0], [10.0]]


def test_a_snapshot_of_the_other_kind_is_refused_and_nothing_is_written():
    host, resident = (FakeBackend(LAYOUT, 2, execution=kind) for kind in KINDS.values())
    host.step_tensor(torch.ones(2, 1))
    saved = host.snapshot()
    with pytest.raises(ValueError, match="FakeBackend.restore: .* is torch.float64 .*nothing was written"):
        resident.restore(saved)
    assert not resident.get_state_views()["qvel"].any()


# ---------------------------------------------------------------- faults


def mass(row: int = 0) -> ResetPayload:
    return ResetPayload(
        torch.tensor([row]), qvel=torch.ones(1, 8), model={"body_mass": torch.tensor([[0.0, 2.0]])}
    )


@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
def test_a_fault_before_the_commit_writes_nothing_and_happens_once(make, call):
    fake = make(faults=[Fault("before_commit", at=1, call=call)])
    commit = getattr(fake, call)
    commit(rows_mask([0], 2), ResetPayload(torch.tensor([0])))
    before = fake.snapshot()
    with pytest.raises(
        ResetRejectedError, match="injected rejection of (reset|row write) 1; nothing was written"
    ):
        commit(rows_mask([0], 2), mass())
    after = fake.snapshot()
    assert [key for key in before if not torch.equal(before[key], after[key])] == ["counts"]
    commit(rows_mask([0], 2), mass())
    assert qvel(fake, 0)[0] == 1.0


@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
def test_a_fault_after_the_first_write_leaves_the_model_field_written_and_the_state_not(make, call):
    fake = make(faults=[Fault("after_first_write", call=call)])
    with pytest.raises(RuntimeError, match="injected fault in the middle of (reset|row write) 0"):
        getattr(fake, call)(rows_mask([0], 2), mass())
    assert fake.snapshot()["field:body_mass"][0].tolist() == [0.0, 2.0]
    assert not fake.get_state_views()["qvel"].any()


def test_faults_of_resets_and_of_row_writes_count_apart(make):
    fake = make(faults=[Fault("before_commit", at=0, call="write_rows")])
    reset_rows(fake, [0])
    with pytest.raises(ResetRejectedError, match="row write 0"):
        write_rows(fake, [0], qvel=[[0.0] * 8])
    fake.set_state_tensor(torch.tensor([0]), torch.tensor([LAYOUT.default_qpos]), torch.ones(1, 8))
    assert qvel(fake, 0)[0] == 1.0


def test_a_fault_in_a_step_and_a_row_that_turns_nan(make):
    fake = make(faults=[Fault("nan", at=1, row=1), Fault("step", at=3)])
    fake.step_tensor(push(fake), 2)
    assert fake.bad_rows().tolist() == [False, True]
    with pytest.raises(RuntimeError, match="injected fault in substep 3"):
        fake.step_tensor(push(fake), 2)


# ---------------------------------------------------------------- without an engine


def test_fakes_need_neither_mujoco_nor_pytest(program):
    finished = program("""
import sys
sys.modules["mujoco"] = sys.modules["pytest"] = None
import torch
from unisim import TensorExecution
from unisim.testing import FakeBackend, Fault, make_layout
for kind in TensorExecution:
    fake = FakeBackend(make_layout(), 2, execution=kind)
    fake.step_tensor(torch.ones(2, 1), 3)
    fake.close()
""")
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_resident_fake_lives_on_the_declared_device():
    fake = FakeBackend(LAYOUT, 2, execution=TensorExecution.DEVICE_RESIDENT, device="cuda")
    fake.step_tensor(torch.ones(2, 1, device="cuda"), 2)
    assert fake.get_state_views()["qvel"].device == torch.device("cuda:0")
    assert fake.get_tensor_capabilities().accepted_devices == ("cuda",)
