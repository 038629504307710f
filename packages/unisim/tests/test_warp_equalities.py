"""MuJoCo-Warp: bodies that constraints hold together move as with MuJoCo, and forget their last episode."""

from __future__ import annotations

import pytest
import torch
from unisim_support import from_xml, reset_rows
from warp_support import everything, largest_difference, warp_backend

from unisim import SimCfg
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

LINK = 'size=".02" mass=".2" contype="0" conaffinity="0"'
LOOP = f"""<mujoco><worldbody>
  <body name="a" pos="0 0 1"><joint name="a" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" {LINK}/>
    <body name="b" pos=".3 0 0"><joint name="b" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.3" {LINK}/></body>
  </body>
  <body name="c" pos="0 0 .5"><joint name="c" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 .2" {LINK}/></body>
</worldbody>
<equality>{{}}</equality>
<actuator><motor joint="a" gear="20"/></actuator></mujoco>"""
KINDS = pytest.mark.parametrize(
    "constraint",
    [
        '<connect body1="b" body2="c" anchor="0 0 -.3"/>',
        '<weld body1="b" body2="c"/>',
        '<joint joint1="a" joint2="c" polycoef="0 .5 0 0 0"/>',
    ],
    ids=["connect", "weld", "joint"],
)
CTRL = torch.tensor([[0.3], [0.0], [-0.3]])


def make(constraint: str, kind: type = MuJoCoWarpBackend):
    params = {"xml": LOOP.format(constraint)}
    return warp_backend(from_xml, 3, params=params, backend_class=kind, sim=SimCfg(timestep=0.002))


def pair(constraint: str):
    return make(constraint), make(constraint, MuJoCoBackend)


@KINDS
@pytest.mark.parametrize("substeps", [1, 4])
def test_they_move_as_with_mujoco_whatever_the_substeps(constraint, substeps):
    warp, mujoco = pair(constraint)
    for _ in range(100 // substeps):
        for backend in (warp, mujoco):
            backend.step_tensor(CTRL, substeps)
    assert largest_difference(warp, mujoco) < 2e-5


@KINDS
def test_rows_with_different_pasts_restart_alike_and_as_with_mujoco(constraint):
    warp, mujoco = pair(constraint)
    for backend in (warp, mujoco):
        for _ in range(40):
            backend.step_tensor(CTRL, 1)
        reset_rows(backend, [0, 1], qvel=[[1.0, -2.0, 0.7]] * 2)
    found, expected = everything(warp)["qacc"], everything(mujoco)["qacc"]
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[:2], expected[:2], atol=1e-3, rtol=1e-4)


@KINDS
def test_a_restored_run_goes_on_to_the_bit(constraint):
    backend, other = make(constraint), make(constraint)
    for _ in range(25):
        backend.step_tensor(CTRL, 4)
    other.restore(backend.snapshot())
    for each in (backend, other):
        each.step_tensor(CTRL, 4)
    assert torch.equal(backend.get_state_views()["qpos"], other.get_state_views()["qpos"])


def test_a_sensor_of_the_kinetic_energy_is_that_of_the_present_state():
    xml = LOOP.format("").replace("</mujoco>", '<sensor><e_kinetic name="energy"/></sensor></mujoco>')
    backends = [
        warp_backend(from_xml, 3, params={"xml": xml}, backend_class=kind)
        for kind in (MuJoCoWarpBackend, MuJoCoBackend)
    ]
    for _ in range(5):
        for backend in backends:
            backend.step_tensor(CTRL, 4)
        found, expected = (backend.get_sensor_view("robot/energy") for backend in backends)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        assert (expected > 1e-3).all()
