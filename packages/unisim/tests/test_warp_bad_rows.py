"""MuJoCo-Warp: bad rows are told without waiting for the device, and their neighbours do not notice."""

from __future__ import annotations

import math

import pytest
import torch
from unisim_support import PENDULUM, from_xml, pendulum, reset_rows, write_rows
from warp_support import warp_backend

from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes


@pytest.fixture
def backend():
    made = warp_backend(pendulum, 3)
    yield made
    made.close()


def step(backend, ctrl=((0.0,), (0.0,), (0.0,))):
    backend.step_tensor(torch.tensor(ctrl), 4)


def bad(backend) -> list[bool]:
    return backend.bad_rows().tolist()


def test_no_row_is_bad_at_the_start_or_after_ordinary_steps(backend):
    assert bad(backend) == [False] * 3
    step(backend)
    assert bad(backend) == [False] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_qa_066_a_control_that_is_not_finite_becomes_0_and_its_row_bad(backend, value):
    twin = warp_backend(pendulum, 3)
    for i in range(5):
        step(backend, ((0.3,), (value if i == 2 else 0.0,), (-0.2,)))
        step(twin, ((0.3,), (0.0,), (-0.2,)))
    for name, values in twin.get_state_views().items():
        assert torch.equal(backend.get_state_views()[name], values), name
    assert bad(backend) == [False, True, False]
    step(backend)
    assert bad(backend) == [False, True, False]
    reset_rows(backend, [1])
    step(backend)
    assert bad(backend) == [False] * 3
    twin.close()


@pytest.mark.parametrize(("field", "value"), [("qpos", math.nan), ("qvel", math.inf), ("qpos", -math.inf)])
def test_a_state_that_is_not_finite_is_bad_at_once_and_stays_while_its_neighbours_go_on(
    backend, field, value
):
    twin = warp_backend(pendulum, 3)
    for each in (backend, twin):
        write_rows(each, [0, 1, 2], qpos=[[0.1], [0.2], [0.3]])
    backend.get_state_views()[field][1] = value  # what the engine itself may arrive at
    assert bad(backend) == [False, True, False]
    for _ in range(10):
        step(backend)
        step(twin)
    assert bad(backend) == [False, True, False]
    assert not torch.isfinite(backend.get_state_views()["qpos"][1]).any()
    for name in ("qpos", "qvel"):
        assert torch.equal(backend.get_state_views()[name][[0, 2]], twin.get_state_views()[name][[0, 2]])
    reset_rows(backend, [1])
    step(backend)
    assert bad(backend) == [False] * 3
    assert torch.isfinite(backend.get_state_views()["qpos"]).all()
    twin.close()


def test_a_control_too_large_for_an_actuator_without_limits_is_bad_as_with_mujoco():
    xml = PENDULUM.replace('joint="hinge"/>', 'joint="hinge" gear="1e-9"/>')
    limited = xml.replace('gear="1e-9"', 'gear="1" ctrlrange="-1 1"')
    for model, expected in ((xml, [False, True, False]), (limited, [False] * 3)):
        for kind in (MuJoCoWarpBackend, MuJoCoBackend):
            backend = warp_backend(from_xml, 3, params={"xml": model}, backend_class=kind)
            step(backend, ((0.0,), (1e11,), (0.0,)))
            assert bad(backend) == expected, kind
            moved = backend.get_state_views()["qvel"][:, 0] != 0.0
            assert moved.tolist() == [False, not any(expected), False], kind
            backend.close()


@pytest.mark.parametrize("parts", [{"qpos": [[1e12]]}, {"qvel": [[1e11]]}])
def test_a_finite_state_that_mujoco_would_warn_of_is_bad_from_the_next_step_until_its_reset(backend, parts):
    write_rows(backend, [2], **parts)
    assert bad(backend) == [False] * 3
    step(backend)
    assert bad(backend) == [False, False, True]
    write_rows(backend, [2], qpos=[[0.0]], qvel=[[0.0]])
    step(backend)
    assert bad(backend) == [False, False, True]
    reset_rows(backend, [2])
    step(backend)
    assert bad(backend) == [False] * 3
