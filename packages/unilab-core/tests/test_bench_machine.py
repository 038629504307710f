"""What a record says of the machine."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest
import torch

from unilab_core.benching import machine
from unilab_core.benching.machine import describe_machine, torch_threads


def test_versions_are_those_of_what_is_installed(monkeypatch):
    installed = {"unisim": "1", "unilab-core": "2", "mujoco": "3", "rsl-rl-lib": "4"}

    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(machine, "version", version)
    versions = describe_machine("cpu").versions
    assert versions.items() >= installed.items()
    assert versions.keys() - installed.keys() == {"python", "torch"}


@pytest.mark.parametrize(
    ("device", "available", "gpu"),
    [("cpu", True, None), ("cuda:0", True, "Card of cuda:0"), ("cuda:0", False, None)],
)
def test_a_graphics_device_is_named_where_it_is_measured(device, available, gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card of {device}")
    assert describe_machine(device).gpu == gpu


def test_cores_are_those_that_may_be_used(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: frozenset({3, 5}))
    assert describe_machine("cpu").cores == 2


@pytest.mark.parametrize("number", [1, 2])
def test_threads_are_put_back_even_after_a_failure(number):
    before = torch.get_num_threads()

    def fails() -> None:
        with torch_threads(number):
            assert torch.get_num_threads() == number
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fails()
    assert torch.get_num_threads() == before
