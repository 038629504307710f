"""MuJoCo-Warp: randomised fields change the motion of their row as in MuJoCo, after capture, and of no other row."""

from __future__ import annotations

import pytest
import torch
from leg_model import FIELDS, leg_backend
from leg_values import changed
from unisim_support import reset_rows, rows_mask
from warp_support import controls, everything, largest_difference, leg_pair

from unisim import ResetPayload
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

STEPS = 25
"""Control steps of 4 substeps: 100 of physics."""


def reset_model(backend, rows: list[int], **fields: torch.Tensor) -> None:
    model = {name: values.expand(len(rows), *values.shape).contiguous() for name, values in fields.items()}
    backend.apply_reset(rows_mask(rows, backend.num_envs), ResetPayload(torch.tensor(rows), model=model))


@pytest.mark.parametrize("name", FIELDS)
def test_a_row_moves_as_with_mujoco_and_differs_from_the_nominal_one(name):
    warp, mujoco = leg_pair(3, Declared((name,)))
    for backend in (warp, mujoco):
        reset_model(backend, [1], **{name: changed(name)})
    moved = 0.0
    for ctrl in controls(warp, STEPS, scale=0.5):
        same = ctrl[:1].expand(3, -1).contiguous()
        for backend in (warp, mujoco):
            backend.step_tensor(same, 4)
        assert largest_difference(warp, mujoco) < 1e-5
        qpos = warp.get_state_views()["qpos"]
        assert torch.equal(qpos[0], qpos[2])
        moved = max(moved, float((qpos[1] - qpos[0]).abs().max()))
    assert moved > 1e-4, "the field had no effect"


def test_all_fields_at_once_agree_with_mujoco_in_every_read():
    warp, mujoco = leg_pair(3, Declared(FIELDS))
    for backend in (warp, mujoco):
        reset_model(backend, [0, 2], **{name: changed(name) for name in FIELDS})
    for ctrl in controls(warp, STEPS, scale=0.5):
        for backend in (warp, mujoco):
            backend.step_tensor(ctrl, 4)
    found, expected = everything(warp), everything(mujoco)
    assert largest_difference(warp, mujoco) < 1e-5
    for key, values in expected.items():
        if key != "qacc":
            torch.testing.assert_close(found[key], values, atol=1e-4, rtol=1e-3)
    # One linear system gives all accelerations of a row: their rounding is that of the largest.
    rounding = 1e-4 + 1e-3 * expected["qacc"].abs().amax(dim=1, keepdim=True)
    assert ((found["qacc"] - expected["qacc"]).abs() <= rounding).all()


def test_derived_constants_follow_the_row_s_own_values():
    warp, mujoco = leg_pair(3, Declared(FIELDS))
    for backend in (warp, mujoco):
        reset_model(backend, [1], **{name: changed(name) for name in FIELDS})
    saved = warp.snapshot()
    model = [mujoco._batch.get_model(row) for row in range(3)]
    names = [key for key in saved if key.startswith("derived:")]
    assert len(names) >= 6
    for key in names:
        for row in range(3):
            expected = torch.tensor(getattr(model[row], key.removeprefix("derived:"))).float().flatten()
            torch.testing.assert_close(saved[key][row], expected, atol=1e-6, rtol=1e-4)
        assert not torch.equal(saved[key][0], saved[key][1]), key
        assert torch.equal(saved[key][0], saved[key][2]), key


def test_no_constant_is_computed_again_where_no_input_of_one_was_written():
    backend = leg_backend(3, declared=Declared(FIELDS), backend_class=MuJoCoWarpBackend)
    derived = backend._physics.model.derived["body_invweight0"]
    derived[1, 0] = 7.0  # a mark that computing would remove
    reset_model(backend, [1], geom_friction=changed("geom_friction"))
    assert derived[1, 0] == 7.0
    reset_model(backend, [1], body_mass=changed("body_mass"))
    assert derived[1, 0] != 7.0


def test_a_model_field_of_a_row_write_changes_the_motion_and_keeps_the_time():
    warp, mujoco = leg_pair(2, Declared(("body_mass", "gravity")))
    for ctrl in controls(warp, 3):
        for backend in (warp, mujoco):
            backend.step_tensor(ctrl, 4)
    time = warp.snapshot()["state:time"].clone()
    values = {name: changed(name).unsqueeze(0) for name in ("body_mass", "gravity")}
    for backend in (warp, mujoco):
        backend.write_rows(rows_mask([1], 2), ResetPayload(torch.tensor([1]), model=dict(values)))
    assert torch.equal(warp.snapshot()["state:time"], time)
    for ctrl in controls(warp, 10, seed=1):
        for backend in (warp, mujoco):
            backend.step_tensor(ctrl, 4)
    assert largest_difference(warp, mujoco) < 1e-5


def test_a_row_that_was_randomised_returns_to_the_nominal_bits():
    backend = leg_backend(3, declared=Declared(FIELDS), backend_class=MuJoCoWarpBackend)
    fresh = backend.snapshot()
    reset_model(backend, [0, 1], **{name: changed(name) for name in FIELDS})
    nominal = {name: backend.model_layout.fields[name].nominal_tensor() for name in FIELDS}
    reset_model(backend, [0, 1], **nominal)
    again = backend.snapshot()
    for key in fresh:
        assert torch.equal(again[key], fresh[key]), key
    reset_rows(backend, [2])
