"""Making and closing the MuJoCo backend: capabilities, threads, and what is left afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from unisim_support import calls_of_two_rows, hopper, pendulum

from unisim import (
    CapabilityError,
    EntityCfg,
    HostBridgeSpec,
    SceneCfg,
    SimCfg,
    TensorExecution,
    list_backends,
    make_backend,
)
from unisim.contract import Declared

SCENE = SceneCfg(entities={"robot": EntityCfg(spec=pendulum)})


def test_the_backend_is_found_by_its_entry_point():
    assert "mujoco" in list_backends()


def test_an_unknown_backend_is_answered_with_the_nearest():
    with pytest.raises(CapabilityError, match=r"unknown backend 'mujoko'; did you mean 'mujoco'\?"):
        make_backend("mujoko", SCENE, SimCfg(), num_envs=1)


def test_a_missing_engine_names_the_extra_to_install(program):
    finished = program("""
import sys
sys.modules["mujoco"] = None
from unisim import CapabilityError, SceneCfg, SimCfg, make_backend
try:
    make_backend("mujoco", SceneCfg(), SimCfg(), num_envs=1)
except CapabilityError as error:
    print(error)
""")
    assert finished.stdout == "backend 'mujoco' needs MuJoCo: pip install 'unisim[mujoco]>=2.0'\n"


@pytest.mark.parametrize(
    "module", ["unisim", "unisim.config", "unisim.scene", "unisim.factory", "unisim.errors"]
)
def test_importing_it_imports_neither_torch_nor_an_engine_and_prints_nothing(program, module):
    finished = program(f"""
import sys, {module}
heavy = {{"torch", "mujoco", "numpy", "warp"}} & set(sys.modules)
assert not heavy, heavy
""")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_listing_backends_imports_none_of_them(program):
    finished = program("""
import sys, unisim
assert "mujoco" in unisim.list_backends()
assert not {"torch", "mujoco", "unisim.backends.mujoco"} & set(sys.modules)
""")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_capabilities_say_what_this_backend_can_do(simulate):
    backend = simulate(hopper, 1)
    capabilities = backend.get_tensor_capabilities()
    assert capabilities.execution is backend.tensor_execution() is TensorExecution.HOST_BRIDGE
    assert capabilities.accepted_devices == ("cpu", "cuda")
    assert "robot/acc" in capabilities.sensors
    assert capabilities.selected_reset
    assert capabilities.wrenches
    assert capabilities.snapshots
    assert "body_mass" in capabilities.randomizable_fields
    assert not capabilities.contact_reads  # the scene has no contact sensor
    assert not capabilities.graph_capture


def test_every_optimisation_that_is_off_says_why(simulate):
    diagnostics = simulate(pendulum, 1).get_runtime_diagnostics()
    assert [d.name for d in diagnostics if d.enabled] == ["persistent_batch"]
    assert all(d.enabled or d.reason for d in diagnostics)


def test_everything_declared_that_it_cannot_do_is_listed_in_one_error():
    declared = Declared(
        model_fields=("body_mas", "gravity", "gravity"),
        wrench_bodies=("robot/ro",),
        substep_sensors=("imu",),
        decimation=0,
    )
    with pytest.raises(CapabilityError) as caught:
        make_backend("mujoco", SCENE, SimCfg(), num_envs=1, device="meta", declared=declared)
    for part in (
        "device 'meta' is not one of ('cpu', 'cuda')",
        "model field 'body_mas' does not exist; did you mean 'body_mass'",
        "model field 'gravity' is declared twice",
        "substep sensor 'imu' does not exist; there are none",
        "decimation is 0, expected at least 1",
    ):
        assert part in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cuda_device_that_is_not_there_is_a_capability_error(simulate):
    with pytest.raises(CapabilityError, match="device 'cuda' is not there: torch finds no CUDA device"):
        make_backend("mujoco", SCENE, SimCfg(), num_envs=1, device="cuda")
    with pytest.raises(CapabilityError, match="device 'cuda:1' is not there"):
        simulate(pendulum, 1).compile_host_bridge_io(HostBridgeSpec(device="cuda:1"))


def test_a_backend_needs_a_row():
    with pytest.raises(ValueError, match="MuJoCoBackend: num_envs is 0, expected at least 1"):
        make_backend("mujoco", SCENE, SimCfg(), num_envs=0)


def test_a_model_without_joints_or_actuators_steps(simulate):
    backend = make_backend("mujoco", SceneCfg(), SimCfg(num_threads=1), num_envs=2)
    backend.step_tensor(torch.zeros(2, 0))
    assert backend.get_state_views()["qpos"].shape == (2, 0)
    backend.close()


@pytest.mark.parametrize(("call", "arguments"), calls_of_two_rows(1))
def test_every_call_after_close_raises(simulate, call, arguments):
    backend = simulate(pendulum, 2)
    backend.close()
    with pytest.raises(RuntimeError, match=f"MuJoCoBackend.{call}: the backend is closed"):
        getattr(backend, call)(*arguments)


def test_closing_twice_is_allowed_and_returns_nothing(simulate):
    backend = simulate(pendulum, 2)
    assert backend.close() is None
    assert backend.close() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts are read from /proc")
def test_qa_108_twenty_backends_leave_no_thread_and_no_file_behind():
    def counts() -> tuple[int, int]:
        status = Path("/proc/self/status").read_text()
        threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
        return threads, len(os.listdir("/proc/self/fd"))

    def cycle() -> None:
        backend = make_backend("mujoco", SCENE, SimCfg(num_threads=3), num_envs=4)
        plan = backend.compile_host_bridge_io(HostBridgeSpec(bodies=("robot/rod",)))
        plan.write_control(torch.zeros(4, 1))
        plan.step(2)
        plan.read()
        during.append(counts()[0])
        backend.close()
        kept.append((backend, plan))  # what is closed holds nothing, also when it is still referenced

    during: list[int] = []
    kept = []
    cycle()
    before = counts()
    for _ in range(20):
        cycle()
    after = counts()
    assert min(during) > before[0]
    assert abs(after[0] - before[0]) <= 1
    assert abs(after[1] - before[1]) <= 1
