"""A payload whose tensors require grad is written as its values are; nothing of it enters the engine's graph."""

from __future__ import annotations

import pytest
import torch
from leg_model import leg_backend
from unisim_support import rows_mask

from unisim import HostBridgeSpec, ResetPayload, TensorExecution
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.contract import Declared
from unisim.testing import FakeBackend, make_layout

N, ROWS = 4, [0, 2]
FIELDS = ("body_mass", "gravity")
DECLARED = Declared(FIELDS)


def warp():
    pytest.importorskip("warp")
    from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend

    return leg_backend(N, declared=DECLARED, backend_class=MuJoCoWarpBackend)


BACKENDS = {
    "fake host bridge": lambda: FakeBackend(make_layout(free_root=True), N, declared=DECLARED),
    "fake on the device": lambda: FakeBackend(
        make_layout(free_root=True), N, declared=DECLARED, execution=TensorExecution.DEVICE_RESIDENT
    ),
    "mujoco": lambda: leg_backend(N, declared=DECLARED, backend_class=MuJoCoBackend),
    "mujoco_warp": warp,
}


def payload(backend, *, requires_grad: bool, model: bool) -> ResetPayload:
    layout, k = backend.model_layout, len(ROWS)
    generator = torch.Generator().manual_seed(2)
    values = {
        "qpos": torch.tensor(layout.default_qpos).expand(k, -1).clone(),
        "qvel": torch.rand(k, layout.nv, generator=generator),
        "ctrl": torch.rand(k, layout.nu, generator=generator) * 0.1,
    }
    if model:
        nominal = {name: layout.fields[name].nominal_tensor() for name in FIELDS}
        values |= {name: one.expand(k, *one.shape) * 1.25 for name, one in nominal.items()}
    values = {name: one.detach().requires_grad_(requires_grad) for name, one in values.items()}
    state = {name: values.pop(name) for name in ("qpos", "qvel", "ctrl")}
    return ResetPayload(torch.tensor(ROWS), **state, model=values)


def commit(backend, call: str, *, requires_grad: bool) -> None:
    given = payload(backend, requires_grad=requires_grad, model=call == "apply_reset")
    if call == "set_state_tensor":
        backend.set_state_tensor(given.env_ids, given.qpos, given.qvel)
        return
    if call == "write_rows":
        given.ctrl = None
    getattr(backend, call)(rows_mask(ROWS, N), given)
    assert all(
        values.requires_grad == requires_grad for _, values in given.parts()
    )  # it is the caller's still


@pytest.mark.parametrize("call", ["apply_reset", "write_rows", "set_state_tensor"])
@pytest.mark.parametrize("kind", BACKENDS)
def test_it_is_written_whole_as_the_same_numbers_without_a_gradient(kind, call):
    backend, twin = BACKENDS[kind](), BACKENDS[kind]()
    try:
        commit(backend, call, requires_grad=True)
        commit(twin, call, requires_grad=False)
        for name, values in twin.get_state_views().items():
            now = backend.get_state_views()[name]
            assert torch.equal(now, values), name
            assert not now.requires_grad
        expected = twin.snapshot()
        assert all(torch.equal(values, expected[name]) for name, values in backend.snapshot().items())
    finally:
        backend.close()
        twin.close()


@pytest.mark.parametrize("kind", ["fake host bridge", "mujoco"])
def test_through_a_plan_too(kind):
    backend, twin = BACKENDS[kind](), BACKENDS[kind]()
    for one, requires_grad in ((backend, True), (twin, False)):
        plan = one.compile_host_bridge_io(HostBridgeSpec())
        plan.apply_reset(rows_mask(ROWS, N), payload(one, requires_grad=requires_grad, model=True))
        assert not plan.read_selected().requires_grad
    expected = twin.snapshot()
    assert all(torch.equal(values, expected[name]) for name, values in backend.snapshot().items())
