"""Accelerations, forces, wrench bodies and contacts of both kinds of fake."""

from __future__ import annotations

import pytest
import torch
from unisim_support import reset_rows, rows_mask, write_rows

from unisim import ContactLayout, ResetPayload, TensorExecution
from unisim.contract import Declared
from unisim.testing import FakeBackend, make_layout

KINDS = {kind.value: kind for kind in TensorExecution}
LAYOUT = make_layout(sensors={"force": (1, "acceleration")}, free_root=True, timestep=0.5)
DECLARED = Declared(("dof_damping", "actuator_gainprm", "gravity"), ("robot/base",))
SLIDER = 6  # velocity column


@pytest.fixture(params=KINDS)
def make(request):
    """Makes fakes of one kind."""

    def build(num_envs: int = 2, layout=LAYOUT, declared=DECLARED, **options):
        return FakeBackend(layout, num_envs, execution=KINDS[request.param], declared=declared, **options)

    return build


def push(backend, slider: float = 0.0, x: float = 0.0) -> torch.Tensor:
    ctrl = torch.zeros(backend.num_envs, 7)
    ctrl[:, 0], ctrl[:, 1] = slider, x
    return ctrl


def model(backend, row: int, **fields: list) -> None:
    values = {name: torch.tensor([value], dtype=torch.float32) for name, value in fields.items()}
    backend.apply_reset(rows_mask([row], backend.num_envs), ResetPayload(torch.tensor([row]), model=values))


# ---------------------------------------------------------------- accelerations and forces


def accelerations(fake) -> dict[str, list]:
    views = fake.get_state_views(["qacc", "actuator_force"])
    return {name: values.tolist() for name, values in views.items()}


def test_accelerations_and_forces_are_those_of_the_last_substep(make):
    fake = make()
    model(fake, 1, actuator_gainprm=[[3.0, *[0.0] * 9]], dof_damping=[0.0] * 6 + [0.5, 0.0])
    fake.step_tensor(push(fake, 2.0, x=1.0), 2)
    found = accelerations(fake)
    assert found["actuator_force"] == [[2.0], [6.0]]
    # Row 1: after the first substep the slider moves at 0.5 s * 6 = 3, which damps the second by 0.5 * 3.
    assert [row[SLIDER] for row in found["qacc"]] == [2.0, 4.5]
    assert [row[0] for row in found["qacc"]] == [1.0, 1.0]


def test_a_row_write_keeps_them_and_a_reset_computes_them_without_a_wrench(make):
    fake = make()
    fake.step_tensor(push(fake, 2.0, x=1.0))
    before = accelerations(fake)
    write_rows(fake, [0, 1], qvel=[[9.0] * 8] * 2)
    assert accelerations(fake) == before
    model(fake, 1, gravity=[0.0, 0.0, -10.0])
    after = accelerations(fake)
    assert (after["qacc"][0], after["actuator_force"][0]) == (before["qacc"][0], [2.0])
    assert (after["qacc"][1], after["actuator_force"][1]) == ([0.0, 0.0, -10.0, *[0.0] * 5], [0.0])
    reset_rows(fake, [0], ctrl=[[-0.5]])
    assert accelerations(fake)["actuator_force"][0] == [-0.5]
    assert accelerations(fake)["qacc"][0][SLIDER] == -0.5


def test_a_script_overwrites_them_and_a_snapshot_brings_them_back(make):
    def script(substep, state):
        return {
            "qacc": torch.full_like(state["qacc"], 7.0),
            "actuator_force": torch.full_like(state["actuator_force"], -3.0),
        }

    fake = make(script=script)
    fake.step_tensor(push(fake))
    assert accelerations(fake) == {"qacc": [[7.0] * 8] * 2, "actuator_force": [[-3.0]] * 2}
    saved = fake.snapshot()
    reset_rows(fake, [0, 1])
    assert accelerations(fake) == {"qacc": [[0.0] * 8] * 2, "actuator_force": [[0.0]] * 2}
    fake.restore(saved)
    assert accelerations(fake)["qacc"] == [[7.0] * 8] * 2


def test_reads_that_follow_from_the_state_may_give_them_too(make):
    fake = make(reads=lambda state: {"qacc": state["qvel"] * 2.0})
    fake.step_tensor(push(fake, 2.0))
    assert accelerations(fake)["qacc"][0][SLIDER] == 2.0
    write_rows(fake, [0], qvel=[[5.0] * 8])
    assert accelerations(fake)["qacc"][0][SLIDER] == 2.0  # of the last substep, not of the written state


# ---------------------------------------------------------------- contacts


def test_a_contact_sensor_of_a_fake_has_a_layout_and_is_scripted_like_any_other(make):
    contacts = {"feet": ContactLayout(("force", "found"), num=2, reduce="maxforce")}
    layout = make_layout(sensors={"imu": (1, "velocity")}, contacts=contacts)
    sensor = layout.sensors[1]
    assert (sensor.name, sensor.start, sensor.dim, sensor.stage) == ("feet", 1, 8, "acceleration")
    assert sensor.contact is contacts["feet"]
    assert layout.sensors[0].contact is None
    fake = make(layout=layout, declared=Declared(), script=lambda i, state: {"sensor:feet": slots})
    slots = torch.arange(16.0).reshape(2, 8)
    fake.step_tensor(torch.zeros(2, 1))
    assert fake.get_tensor_capabilities().contact_reads
    values = fake.get_sensor_view("feet").view(2, 2, 4)
    assert values[..., sensor.contact.columns["force"]].tolist()[0] == [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]
    assert not make().get_tensor_capabilities().contact_reads


# ---------------------------------------------------------------- wrench bodies


def test_wrench_bodies_are_names_or_patterns_resolved_in_model_order(make):
    layout = make_layout(joints=("left/hip", "right/hip", "box/lid"), actuated=(), timestep=0.5)
    fake = make(
        layout=layout, declared=Declared(wrench_bodies=("right/base", ".*ft/.*", "(left|right)/base"))
    )
    assert fake.declared.wrench_bodies == ("left/base", "right/base")
    ctrl = torch.zeros(2, 12)
    ctrl[1, 6] = 1.0  # of the second body; the first velocity of its joints takes it
    fake.step_tensor(ctrl)
    assert fake.get_state_views()["qvel"].tolist() == [[0.0, 0.0, 0.0], [0.0, 0.5, 0.0]]
