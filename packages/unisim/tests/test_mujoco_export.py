"""The model of one row as a file that MuJoCo alone can load."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from leg_model import FIELDS, leg_backend
from unisim_support import rows_mask

from unisim import ResetPayload
from unisim.contract import Declared

BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def load(exported: bytes, path) -> mujoco.MjModel:
    path.write_bytes(exported)
    return mujoco.MjModel.from_binary_path(str(path))


def randomised(persistent: bool):
    """Three legs; row 1 differs from the others in every field that may."""
    backend = leg_backend(3, declared=Declared(model_fields=FIELDS), persistent=persistent, num_threads=2)
    model = {}
    for name in FIELDS:
        values = backend.model_layout.fields[name].nominal_tensor().unsqueeze(0)
        model[name] = values if name == "body_iquat" else values * 1.25
    backend.apply_reset(rows_mask([1], 3), ResetPayload(torch.tensor([1]), model=model))
    return backend


@BOTH
def test_a_loaded_model_moves_to_the_bit_as_its_row_does(tmp_path, persistent):
    backend = randomised(persistent)
    models = [load(backend.export_model(row), tmp_path / f"{row}.mjb") for row in range(3)]
    rows = [mujoco.MjData(model) for model in models]
    for i, (model, data) in enumerate(zip(models, rows, strict=True)):
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        state = backend._batch.get_data(i)
        values = np.empty(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, state, values, kind)
        mujoco.mj_setState(model, data, values, kind)
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        ctrl = torch.rand(3, 3, generator=generator) * 2.0 - 1.0
        backend.step_tensor(ctrl, 4)
        for model, data, values in zip(models, rows, ctrl, strict=True):
            data.ctrl[:] = values.numpy()
            mujoco.mj_step(model, data, 4)
    assert np.array_equal(backend._batch.bind("qpos"), np.array([data.qpos for data in rows]))
    assert np.array_equal(backend._batch.bind("qvel"), np.array([data.qvel for data in rows]))
    assert not np.array_equal(rows[1].qpos, rows[0].qpos)
    backend.close()


def test_it_holds_the_row_s_values_and_names(tmp_path):
    backend = randomised(True)
    nominal, changed = (load(backend.export_model(row), tmp_path / f"{row}.mjb") for row in (0, 1))
    assert changed.body("robot/base").mass[0] == 5.0
    assert changed.opt.gravity.tolist() == [0.0, 0.0, -9.8125 * 1.25]
    assert (
        changed.body_subtreemass[1] == 1.25 * nominal.body_subtreemass[1]
    )  # a constant that derives from masses
    assert nominal.body("robot/base").mass[0] == 4.0
    assert backend.export_model(2) == backend.export_model(0)
    backend.close()


def test_exporting_it_leaves_the_rows_alone():
    backend = randomised(False)
    before = backend.snapshot()
    backend.export_model(1)
    assert all(torch.equal(values, before[key]) for key, values in backend.snapshot().items())
    with pytest.raises(IndexError, match=r"MuJoCoBackend.export_model: row is 3, expected 0 <= row < 3"):
        backend.export_model(3)
    backend.close()
