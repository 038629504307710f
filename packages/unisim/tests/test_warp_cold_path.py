"""MuJoCo-Warp: snapshots in another process, exported models and images."""

from __future__ import annotations

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import torch
import warp as wp
from leg_model import FIELDS, leg_backend
from leg_values import changed
from unisim_support import reset_rows, rows_mask, write_rows
from warp_support import controls, everything

from unisim import ResetPayload
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared
from unisim.render import CameraCfg

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

DECLARED = Declared(FIELDS, ("robot/shank",), ("robot/touch", "robot/toe_vel"), decimation=4)


def make(num_envs: int = 3, declared: Declared = DECLARED):
    return leg_backend(num_envs, declared=declared, backend_class=MuJoCoWarpBackend)


def randomise(backend, row: int) -> None:
    model = {name: changed(name).unsqueeze(0) for name in backend.declared.model_fields}
    backend.apply_reset(rows_mask([row], backend.num_envs), ResetPayload(torch.tensor([row]), model=model))


def go_on(backend) -> list[dict[str, torch.Tensor]]:
    """30 control steps with a reset and a row write on the way, and everything that is read after each."""
    frames = [everything(backend)]
    for i, ctrl in enumerate(controls(backend, 30, seed=2)):
        backend.step_tensor(ctrl, 4)
        if i == 10:
            reset_rows(backend, [0])
        if i == 20:
            write_rows(backend, [1], qvel=[[0.2] * 8])
        frames.append(everything(backend) | {"bad": backend.bad_rows()})
    return frames


def test_another_process_goes_on_to_the_bit(program, tmp_path):
    backend = make()
    for i, ctrl in enumerate(controls(backend, 30)):
        backend.step_tensor(ctrl, 4)
        if i == 10:
            randomise(backend, 1)
    broken = controls(backend, 1, seed=9)[0]
    broken[2, 0] = float("nan")
    backend.step_tensor(broken, 4)
    torch.save(backend.snapshot(), tmp_path / "snapshot.pt")
    expected = go_on(backend)
    done = program(
        "import sys, torch\n"
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        f"spec = spec_from_file_location('cold', {__file__!r})\n"
        "cold = module_from_spec(spec); spec.loader.exec_module(cold)\n"
        "backend = cold.make()\n"
        "for ctrl in cold.controls(backend, 5, seed=7): backend.step_tensor(ctrl, 4)\n"
        "cold.randomise(backend, 0)\n"
        "backend.restore(torch.load('snapshot.pt', weights_only=True))\n"
        "torch.save(cold.go_on(backend), 'resumed.pt')\n"
    )
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "resumed.pt", weights_only=True)
    assert expected[1]["bad"].tolist() == [False, False, True]
    for frame, other in zip(found, expected, strict=True):
        for key, values in other.items():
            assert torch.equal(frame[key], values), key


def test_a_loaded_model_moves_to_the_bit_as_its_row_does_on_the_same_engine(tmp_path):
    backend = make(declared=Declared(FIELDS))
    randomise(backend, 1)
    start = backend.snapshot()
    path = tmp_path / "row.mjb"
    path.write_bytes(backend.export_model(1))
    model = mujoco.MjModel.from_binary_path(str(path))
    with wp.ScopedDevice("cpu"):
        engine, data = mjw.put_model(model), mjw.make_data(model, nconmax=64, njmax=256)
        engine.opt.warn_overflow = 0
        for name in ("qpos", "qvel", "act", "ctrl", "qacc_warmstart"):
            wp.to_torch(getattr(data, name)).copy_(start[f"state:{name}"][1:2])
        for ctrl in controls(backend, 40):
            backend.step_tensor(ctrl, 4)
            wp.to_torch(data.ctrl).copy_(ctrl[1:2])
            for _ in range(4):
                mjw.step(engine, data)
    found = torch.from_numpy(data.qpos.numpy())[0]
    qpos = backend.get_state_views()["qpos"]
    assert torch.equal(found, qpos[1])
    assert not torch.equal(qpos[0], qpos[1])


def test_an_exported_model_holds_the_nominal_values_in_mujoco_s_precision(tmp_path):
    backend = make(declared=Declared(("body_mass",)))
    path = tmp_path / "row.mjb"
    path.write_bytes(backend.export_model(0))
    model = mujoco.MjModel.from_binary_path(str(path))
    assert np.array_equal(model.body_mass, np.array(backend.model_layout.fields["body_mass"].nominal))


def test_an_image_shows_the_row_that_was_asked_for():
    backend = make(2)
    camera = CameraCfg(width=64, height=48)
    before = backend.render(1, camera)
    write_rows(backend, [0], qpos=[[0.0, 0.0, 1.5, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]])
    assert torch.equal(backend.render(1, camera), before)
    assert not torch.equal(backend.render(0, camera), before)
    from unisim.backends.mujoco.backend import MuJoCoBackend

    other = leg_backend(2, declared=DECLARED, backend_class=MuJoCoBackend).render(1, camera)
    assert (other.int() - before.int()).abs().float().mean() < 0.5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.pop("state:time"), "'state:time' is missing"),
        (lambda s: s.update(odd=torch.zeros(1)), "'odd' is unknown"),
        (lambda s: s.update({"state:qpos": s["state:qpos"].double()}), "'state:qpos' is torch.float64"),
        (lambda s: s.update(model=s["model"] + 1), "belongs to another model"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_nothing_is_written(change, told):
    backend = make()
    before = backend.snapshot()
    given = backend.snapshot()
    change(given)
    for ctrl in controls(backend, 2):
        backend.step_tensor(ctrl, 4)
    now = backend.snapshot()
    with pytest.raises(ValueError, match=told):
        backend.restore(given)
    again = backend.snapshot()
    for key in now:
        assert torch.equal(again[key], now[key]), key
    with pytest.raises(TypeError, match="expected the dict"):
        backend.restore([1])
    backend.restore(before)
    assert torch.equal(backend.snapshot()["state:qpos"], before["state:qpos"])
