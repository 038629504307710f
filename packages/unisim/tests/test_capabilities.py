"""Capabilities refuse combinations that contradict themselves."""

from __future__ import annotations

from unittest import mock

import pytest

from unisim import TensorCapabilities, TensorExecution
from unisim.capabilities import device_problem

HOST = {
    "execution": TensorExecution.HOST_BRIDGE,
    "process_topology": "any_process",
    "data_plane": "packets",
    "accepted_devices": ("cpu",),
    "owns_stream": False,
    "state_fields": ("qpos", "qvel"),
    "sensors": (),
    "selected_reset": True,
    "row_writes": True,
    "randomizable_fields": (),
    "body_reads": True,
    "contact_reads": False,
    "wrenches": False,
    "graph_capture": False,
    "rendering": False,
    "snapshots": False,
}
RESIDENT = HOST | {
    "execution": TensorExecution.DEVICE_RESIDENT,
    "process_topology": "learner_process",
    "data_plane": "views",
    "owns_stream": True,
    "graph_capture": True,
}


@pytest.mark.parametrize("combination", [HOST, RESIDENT], ids=["host bridge", "device resident"])
def test_a_combination_without_contradiction_is_accepted(combination):
    assert TensorCapabilities(**combination).execution is combination["execution"]


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (HOST, {"data_plane": "views"}, "HOST_BRIDGE goes with packets"),
        (RESIDENT, {"data_plane": "packets"}, "DEVICE_RESIDENT with views"),
        (HOST, {"graph_capture": True}, "graph_capture needs DEVICE_RESIDENT"),
        (HOST, {"owns_stream": True}, "owns_stream needs DEVICE_RESIDENT"),
        (RESIDENT, {"process_topology": "any_process"}, "lives in the learner's process"),
        (HOST, {"accepted_devices": ()}, "accepted_devices is empty"),
        (HOST, {"state_fields": ("qpos",)}, "state_fields lacks 'qpos' or 'qvel'"),
        (
            HOST,
            {"selected_reset": False, "randomizable_fields": ("body_mass",)},
            "randomizable_fields need selected_reset",
        ),
    ],
)
def test_a_contradiction_is_refused_and_named(base, change, message):
    with pytest.raises(ValueError, match=message):
        TensorCapabilities(**base | change)


def test_all_contradictions_are_named_at_once():
    with pytest.raises(ValueError, match=r"graph_capture needs DEVICE_RESIDENT; owns_stream needs"):
        TensorCapabilities(**HOST | {"graph_capture": True, "owns_stream": True})


def test_capabilities_cannot_be_changed():
    capabilities = TensorCapabilities(**HOST)
    with pytest.raises(AttributeError):
        capabilities.rendering = True


def test_a_device_that_is_accepted_and_there_is_no_problem():
    assert device_problem("cpu", ("cpu", "cuda")) is None


def test_a_device_that_is_not_accepted_is_a_problem():
    assert device_problem("cpu:7", ("cpu", "cuda")) == "device 'cpu:7': the CPU has no index; use 'cpu'"
    assert str(device_problem("banana", ("cpu", "cuda"))).startswith(
        "device 'banana' is no torch device; expected"
    )
    assert device_problem("mps", ("cpu", "cuda")) == "device 'mps' is not one of ('cpu', 'cuda')"


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"hip": "6.2"}, "device 'cuda:1': this torch is built for ROCm, which nothing here was made for"),
        ({"available": False}, "device 'cuda:1' is not there: torch finds no CUDA device"),
        ({"count": 1}, "device 'cuda:1' is not there: torch finds 1 CUDA device(s)"),
        ({"count": 2}, None),
    ],
)
def test_a_cuda_device_must_be_there_by_its_index(state, problem):
    # A mock stands for hardware that is not part of this project.
    with (
        mock.patch("torch.version.hip", state.get("hip")),
        mock.patch("torch.cuda.is_available", return_value=state.get("available", True)),
        mock.patch("torch.cuda.device_count", return_value=state.get("count", 0)),
    ):
        assert device_problem("cuda:1", ("cpu", "cuda")) == problem
