"""MuJoCo-Warp: what is not there, or not supported, is one clear error; nothing runs on another device instead."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import mujoco
import mujoco_warp as mjw
import pytest
import torch
import warp as wp
from unisim_support import from_xml, pendulum, write_rows
from warp_support import warp_backend

from unisim import CapabilityError, EntityCfg, HostBridgeSpec, SceneCfg, SimCfg, TensorExecution, make_backend
from unisim.backends import mujoco_warp
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp import devices
from unisim.backends.mujoco_warp.devices import CompletionToken, capture_problem, warp_device_problem
from unisim.contract import Declared

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

SCENE = SceneCfg(entities={"robot": EntityCfg(spec=pendulum)})


def make(device: str):
    return make_backend("mujoco_warp", SCENE, SimCfg(), num_envs=2, device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:3"])
def test_without_cuda_asking_for_it_is_one_error_that_says_so(device):
    with pytest.raises(CapabilityError) as error:
        make(device)
    assert str(error.value) == (
        f"MuJoCoWarpBackend cannot do what is asked: device {device!r} is not there: torch finds no CUDA device"
    )


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("mps", "device 'mps' is not one of ('cuda', 'cpu')"),
        ("cpu:1", "the CPU has no index; use 'cpu'"),
        ("gpu", "is no torch device"),
    ],
)
def test_another_device_is_refused(device, told):
    with pytest.raises(CapabilityError) as error:
        make(device)
    assert told in str(error.value)


def test_a_torch_made_for_rocm_is_refused(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.0")
    with pytest.raises(CapabilityError, match="this torch is built for ROCm"):
        make("cuda")


def test_an_index_that_torch_does_not_find_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(CapabilityError, match=r"'cuda:2' is not there: torch finds 2 CUDA device\(s\)"):
        make("cuda:2")


def test_that_torch_finds_a_device_proves_nothing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(wp, "is_cuda_available", lambda: False)
    with pytest.raises(
        CapabilityError, match="'cuda:0' is not there for Warp, though torch finds it; .*driver"
    ):
        make("cuda:0")


def test_a_device_that_warp_does_not_find_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "device_problem", lambda device, accepted: None)
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    problem = warp_device_problem("cuda:7")
    assert problem is not None
    assert problem.startswith("device 'cuda:7' is not there for Warp: ")


def test_cuda_without_an_index_is_torch_s_current_device(monkeypatch):
    found = []
    monkeypatch.setattr(devices, "device_problem", lambda device, accepted: None)
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    monkeypatch.setattr(wp, "device_from_torch", found.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert warp_device_problem("cuda") is None
    assert warp_device_problem("cuda:1") is None
    assert found == [torch.device("cuda", 3), torch.device("cuda", 1)]


def test_it_says_that_it_computes_on_the_cpu(caplog):
    with caplog.at_level(logging.WARNING, logger=mujoco_warp.__name__):
        backend = make("cpu")
    assert [r.message for r in caplog.records if "test path" in r.message] == [
        "MuJoCo-Warp computes on device 'cpu', which is also the default: that is a test path, several times slower "
        "than backend 'mujoco'; ask for device 'cuda' where there is one"
    ]
    assert backend.get_state_views()["qpos"].device == torch.device("cpu")
    backend.close()


@pytest.mark.parametrize("module", ["warp", "mujoco_warp", "mujoco"])
def test_a_missing_engine_names_the_extra(monkeypatch, module):
    found = mujoco_warp.importlib.util.find_spec
    monkeypatch.setattr(
        mujoco_warp.importlib.util, "find_spec", lambda name: None if name == module else found(name)
    )
    with pytest.raises(CapabilityError) as error:
        make("cpu")
    assert str(error.value) == "backend 'mujoco_warp' needs it: pip install 'unisim[mujoco-warp]>=2.0'"


def test_asking_for_a_bridge_is_refused():
    backend = make("cpu")
    assert backend.tensor_execution() is TensorExecution.DEVICE_RESIDENT
    with pytest.raises(CapabilityError, match="views are live"):
        backend.compile_host_bridge_io(HostBridgeSpec())
    backend.close()


def test_it_lives_in_the_process_that_learns():
    backend = make("cpu")
    can = backend.get_tensor_capabilities()
    assert (can.process_topology, can.owns_stream, can.graph_capture) == ("learner_process", True, True)
    backend.close()


# ---------------------------------------------------------------- models

BODY = "<mujoco><worldbody><body><joint name='j'/><geom size='.1' mass='1'/></body></worldbody>{}</mujoco>"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ("<actuator><motor joint='j' nsample='2' delay='.01'/></actuator>", "delays of sensors or actuators"),
        (
            "<option integrator='RK4'/><equality><joint joint1='j'/></equality>"
            "<worldbody><body name='a'><joint name='k'/><geom size='.1'/></body></worldbody>"
            "<equality><weld body1='a'/></equality>",
            "connect or weld constraints with integrator 'rk4'",
        ),
        ("<actuator><pid joint='j'/></actuator>", "an actuator with several controls is not supported"),
    ],
)
def test_a_model_that_is_not_supported_is_refused_with_what_is_wrong(parts, told):
    sim = SimCfg(integrator="rk4" if "RK4" in parts else "implicitfast")
    with pytest.raises(CapabilityError) as error:
        warp_backend(from_xml, 1, params={"xml": BODY.format(parts)}, sim=sim)
    assert told in str(error.value)
    assert "support" in str(error.value)


def test_what_the_engine_refuses_is_told_in_its_own_words(monkeypatch):
    def refuse(model, batch_sizes):
        raise NotImplementedError("['mjSENS_PLUGIN'] not supported.")

    monkeypatch.setattr(mjw, "put_model", refuse)
    with pytest.raises(CapabilityError) as error:
        make("cpu")
    assert str(error.value) == (
        "MuJoCoWarpBackend: MuJoCo-Warp does not support the model: ['mjSENS_PLUGIN'] not supported."
    )


def test_sizes_per_row_of_geoms_that_a_tendon_may_wrap_are_refused():
    xml = """<mujoco><worldbody><site name="a" pos="0 0 1"/><geom name="g" size=".05" pos="0 0 .5"/>
      <body pos="0 .2 0"><joint/><geom size=".1"/><site name="b"/></body></worldbody>
      <tendon><spatial><site site="a"/><geom geom="g"/><site site="b"/></spatial></tendon></mujoco>"""
    warp_backend(from_xml, 1, params={"xml": xml}).close()
    with pytest.raises(CapabilityError, match="do not follow a geom_size per row"):
        warp_backend(from_xml, 1, params={"xml": xml}, declared=Declared(("geom_size",)))


def two_arms() -> mujoco.MjSpec:
    """Two chains of 35 hinges each: more degrees of freedom than a dense Jacobian may have."""
    spec = mujoco.MjSpec()
    for side in (-1.0, 1.0):
        body = spec.worldbody
        for i in range(35):
            body = body.add_body(pos=[0.0, 0.0, -0.1] if i else [side, 0.0, 5.0])
            body.add_joint(axis=[0.0, 1.0, 0.0], damping=[0.1, 0.0, 0.0])
            body.add_geom(size=[0.03, 0.0, 0.0], mass=0.1)
    return spec


def test_a_model_too_large_for_a_dense_jacobian_moves_as_with_mujoco():
    pair = [warp_backend(two_arms, 2), warp_backend(two_arms, 2, backend_class=MuJoCoBackend)]
    for backend in pair:
        write_rows(backend, [1], qvel=[[0.2] * 70])
        for _ in range(5):
            backend.step_tensor(torch.zeros(2, 0), 4)
    found, expected = (backend.get_state_views()["qpos"] for backend in pair)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0.0)
    for backend in pair:
        backend.close()


# ---------------------------------------------------------------- graphs and streams


def test_a_device_without_a_memory_pool_is_not_captured_on(monkeypatch):
    device = SimpleNamespace(is_cpu=False)
    monkeypatch.setattr(wp, "is_mempool_supported", lambda device: True)
    monkeypatch.setattr(wp, "is_mempool_enabled", lambda device: True)
    assert capture_problem(device) is None
    monkeypatch.setattr(wp, "is_mempool_enabled", lambda device: False)
    assert "memory pool" in str(capture_problem(device))
    assert capture_problem(SimpleNamespace(is_cpu=True)) is None


class RecordingStream:
    def __init__(self):
        self.waited = []

    def wait_event(self, event):
        self.waited.append(event)


def test_the_token_makes_the_reading_stream_wait_and_no_one_else():
    event, stream = SimpleNamespace(query=lambda: False), RecordingStream()
    token = CompletionToken(event, torch.device("cpu"))
    assert not token.done()
    token.wait_before_read(stream)
    assert stream.waited == [event]


def test_without_a_stream_the_current_one_of_the_backend_s_device_waits(monkeypatch):
    event, stream, asked = SimpleNamespace(), RecordingStream(), []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: asked.append(device) or stream)
    CompletionToken(event, torch.device("cuda", 1)).wait_before_read()
    assert (asked, stream.waited) == ([torch.device("cuda", 1)], [event])


def test_on_the_cpu_everything_is_done_when_a_call_returns():
    backend = make("cpu")
    backend.step_tensor(torch.zeros(2, 1), 1)
    token = backend.completion()
    assert token.done()
    token.wait_before_read()
    token.synchronize()
    backend.close()
    with pytest.raises(RuntimeError, match="closed"):
        backend.completion()
