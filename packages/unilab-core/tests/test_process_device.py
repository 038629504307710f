"""Which device a process binds to, before backend and tensors exist."""

from __future__ import annotations

import pytest
import torch

from unilab_core import CapabilityError, ProcessDevice
from unilab_core.process_device import resolve_device

ONE_OF_FOUR = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}


@pytest.fixture
def two_gpus(monkeypatch):
    """Lets torch claim two CUDA devices and notes which one was chosen."""
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.version, "hip", None)
    return chosen


def test_a_process_alone_is_rank_zero_of_one():
    assert ProcessDevice.bind(environ={}) == ProcessDevice(torch.device("cpu"), 0, 0, 1)


def test_ranks_come_from_the_environment(monkeypatch):
    for name, value in ONE_OF_FOUR.items():
        monkeypatch.setenv(name, value)
    assert ProcessDevice.bind("cpu") == ProcessDevice(torch.device("cpu"), 3, 1, 4)


def test_cuda_is_the_device_of_the_local_rank(two_gpus):
    place = ProcessDevice.bind("cuda", environ=ONE_OF_FOUR)
    assert place.device == torch.device("cuda", 1)
    assert two_gpus == [torch.device("cuda", 1)]


def test_a_process_alone_may_choose_an_index(two_gpus):
    assert ProcessDevice.bind("cuda:1", environ={}).device == torch.device("cuda", 1)
    assert ProcessDevice.bind("cuda", environ={}).device == torch.device("cuda", 0)


def test_several_processes_must_not_share_an_index(two_gpus):
    with pytest.raises(ValueError, match="device 'cuda:0' with WORLD_SIZE=4 and LOCAL_RANK=1; pass 'cuda'"):
        ProcessDevice.bind("cuda:0", environ=ONE_OF_FOUR)
    assert two_gpus == []


def test_a_local_rank_without_a_device_is_a_capability_error(two_gpus):
    with pytest.raises(CapabilityError, match="device 'cuda:2' is not there: torch finds 2"):
        ProcessDevice.bind("cuda", environ={"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "3"})
    assert two_gpus == []


def test_a_machine_without_cuda_is_a_capability_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "hip", None)
    for call in (lambda: ProcessDevice.bind("cuda", environ={}), lambda: resolve_device("cuda")):
        with pytest.raises(CapabilityError, match="is not there: torch finds no CUDA device"):
            call()


def test_another_kind_of_device_is_a_capability_error():
    with pytest.raises(CapabilityError, match="device 'mps' is not one of"):
        ProcessDevice.bind("mps", environ={})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "0"}, r"\['RANK'\] are set, \['LOCAL_RANK', 'WORLD_SIZE'\] are not; start with torchrun"),
        ({**ONE_OF_FOUR, "RANK": "x"}, "RANK is 'x', expected a whole number >= 0"),
        ({**ONE_OF_FOUR, "RANK": "-1"}, "RANK is '-1'"),
        (
            {**ONE_OF_FOUR, "RANK": "4"},
            "RANK=4, LOCAL_RANK=1, WORLD_SIZE=4; expected LOCAL_RANK <= RANK < WORLD_SIZE",
        ),
        ({**ONE_OF_FOUR, "RANK": "0"}, "RANK=0, LOCAL_RANK=1"),
        ({**ONE_OF_FOUR, "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
    ],
)
def test_contradicting_variables_are_refused(environ, message):
    with pytest.raises(ValueError, match=message):
        ProcessDevice.bind(environ=environ)


def test_a_device_is_named_with_its_index(two_gpus):
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    assert resolve_device("cpu") == torch.device("cpu")
