"""Acceleration-stage values belong to their own row and its last substep, whatever is done to other rows."""

from __future__ import annotations

import pytest
import torch
from leg_model import ACCELERATION, leg_backend
from unisim_support import reset_rows, write_rows

from unisim import HostBridgeSpec

GRID = [(persistent, threads) for persistent in (True, False) for threads in (1, 2, 3)]
GRID_IDS = [f"{'persistent' if p else 'not persistent'}-{t} threads" for p, t in GRID]
QVEL = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


def controls(steps: int, num_envs: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(num_envs, 3, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


def forces(backend) -> torch.Tensor:
    """All acceleration-stage sensors, joint accelerations and actuator forces, (N, ...)."""
    sensors = [backend.get_sensor_view(name) for name in ACCELERATION]
    return torch.cat([*sensors, *backend.get_state_views(("qacc", "actuator_force")).values()], dim=1)


@pytest.fixture(params=GRID, ids=GRID_IDS)
def moving(request):
    """Seven legs in contact, each under its own control, and the values of their last substep."""
    persistent, threads = request.param
    backend = leg_backend(7, persistent=persistent, num_threads=threads)
    for ctrl in controls(12, 7):
        backend.step_tensor(ctrl, 4)
    before = forces(backend)
    assert len({tuple(row) for row in before.tolist()}) == 7
    assert (before[:, 3] > 0).any()  # a toe touches the floor
    yield backend, before
    backend.close()


def test_a_reset_leaves_the_forces_of_unselected_rows(moving):
    backend, before = moving
    reset_rows(backend, [1, 4], qvel=[QVEL] * 2)
    after = forces(backend)
    others = [0, 2, 3, 5, 6]
    assert torch.equal(after[others], before[others])
    assert not torch.equal(after[[1, 4]], before[[1, 4]])


def test_a_row_write_leaves_the_forces_of_all_rows(moving):
    backend, before = moving
    write_rows(backend, [1, 4], qvel=[QVEL] * 2)
    assert torch.equal(forces(backend), before)


def test_row_writes_resets_and_new_reads_in_any_order_leave_them_too(moving):
    backend, before = moving
    write_rows(backend, [0], qvel=[QVEL])
    backend.compile_host_bridge_io(HostBridgeSpec(bodies=("robot/shank",), sites=("robot/toe",))).read()
    reset_rows(backend, [3])
    write_rows(backend, [2, 3], qvel=[QVEL] * 2)
    backend.set_state_tensor(
        torch.tensor([5]), torch.tensor([backend.model_layout.default_qpos]), torch.zeros(1, 8)
    )
    reset_rows(backend, [6])
    after = forces(backend)
    assert torch.equal(after[[0, 1, 2, 4, 5]], before[[0, 1, 2, 4, 5]])
    one = leg_backend(1)
    reset_rows(one, [0])
    # Rows 3 and 6 hold the values of their reset: a row write after it does not touch them.
    assert torch.equal(after[[3, 6]], forces(one).expand(2, -1))
    one.close()


def test_the_next_step_shows_every_row_s_own_forces_again(moving):
    backend, _ = moving
    alone = [leg_backend(1) for _ in range(7)]
    state = backend.snapshot()["state"].clone()
    for i, each in enumerate(alone):
        each._batch.state[:] = state[i].numpy()
    write_rows(backend, [1, 4], qvel=[QVEL] * 2)
    for i in (1, 4):
        write_rows(alone[i], [0], qvel=[QVEL])
    ctrl = controls(1, 7, seed=9)[0]
    backend.step_tensor(ctrl, 4)
    for i, each in enumerate(alone):
        each.step_tensor(ctrl[i : i + 1].contiguous(), 4)
        assert torch.equal(forces(backend)[i], forces(each)[0]), i
        each.close()
