"""The checks of `unilab doctor` that concern no backend."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch

from unilab_core.cli import doctor_checks
from unilab_core.cli.doctor_checks import (
    check_cuda,
    check_layer,
    check_layers,
    check_python,
    check_threads,
    check_torch,
)
from unisim.doctor import Finding

# ---------------------------------------------------------------- Python and layers


@pytest.fixture
def installed(monkeypatch):
    """Installs distributions as metadata only: name to (version, requirements)."""

    def install(**distributions: tuple[str, list[str]]):
        def distribution(name):
            if name.replace("-", "_") not in distributions:
                raise PackageNotFoundError(name)
            found = distributions[name.replace("-", "_")]
            return SimpleNamespace(
                version=found[0], requires=found[1], metadata={"Requires-Python": ">=3.11"}
            )

        monkeypatch.setattr(doctor_checks, "distribution", distribution)
        monkeypatch.setattr(doctor_checks, "version", lambda name: distribution(name).version)

    return install


def test_the_interpreter_is_named(monkeypatch):
    text = f"Python {platform.python_version()} ({platform.system()} {platform.machine()}), {sys.executable}"
    assert check_python() == Finding("Python", "ok", text)


def test_an_interpreter_that_is_too_old_is_broken(monkeypatch):
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.12")
    found = check_python()
    assert (found.state, found.remedy) == ("broken", "install Python >=3.11")
    assert found.text.endswith("; unilab-core needs >=3.11")


def test_the_layers_of_this_environment_fit_together():
    found = check_layers()
    assert [finding.name for finding in found] == list(doctor_checks.LAYERS)
    assert {finding.state for finding in found[:2]} <= {"ok", "note"}  # the others need not be installed
    assert all(finding.state != "broken" for finding in found)


def test_a_layer_that_is_not_installed_is_missing(installed):
    installed()
    text, remedy = "not installed", "install unilab-rl from the source of the other layers"
    assert check_layer("unilab-rl") == Finding("unilab-rl", "missing", text, remedy)


def test_a_layer_is_ok_with_what_it_needs_in_range(installed):
    needs = [
        "unisim<3,>=2.0",
        "torch>=2.8",
        "click>=8.2; extra == 'cli'",
        "gone>=1; sys_platform == 'nowhere'",
    ]
    installed(unilab_core=("0.1.0", needs), unisim=("2.0.3", []), torch=("2.13.0+cpu", []), click=("8.3", []))
    assert check_layer("unilab-core") == Finding("unilab-core", "ok", "0.1.0")


def test_a_dependency_out_of_range_or_missing_is_broken(installed):
    installed(unilab_core=("0.1.0", ["unisim<3,>=2.0", "torch>=2.8"]), unisim=("1.4.0", []))
    text = "0.1.0; unisim is 1.4.0, not <3,>=2.0; torch>=2.8 is missing"
    remedy = "install unilab-core again, with what it needs"
    assert check_layer("unilab-core") == Finding("unilab-core", "broken", text, remedy)


def test_what_only_an_extra_needs_is_no_fault(installed):
    needs = [
        "mujoco<5,>=4.0; extra == 'mujoco'",
        "mujoco<5,>=4.0; extra == 'mujoco-warp'",
        "numpy>=2; extra == 'mujoco'",
    ]
    installed(unisim=("2.0.0", needs))
    assert check_layer("unisim") == Finding("unisim", "ok", "2.0.0")
    installed(unisim=("2.0.0", needs), mujoco=("3.3.0", []))
    text = "2.0.0; for its extras mujoco is 3.3.0, not <5,>=4.0"
    assert check_layer("unisim") == Finding("unisim", "note", text)


def test_another_project_over_the_files_of_ours_is_broken(installed):
    installed(unisim=("2.0.0", []), unisim_core=("1.5.0", []))
    text = "2.0.0, and unisim-core 1.5.0, which overwrites its files"
    remedy = "pip uninstall unisim-core, then install unisim again"
    assert check_layer("unisim") == Finding("unisim", "broken", text, remedy)


# ---------------------------------------------------------------- Torch and CUDA


@pytest.fixture
def build(monkeypatch):
    """Makes Torch another build on another machine."""

    def make(*, cuda=None, hip=None, driver="", devices=(), visible=None):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(devices))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: devices[index])
        monkeypatch.setattr(doctor_checks, "_driver", lambda: driver)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return make


@pytest.mark.parametrize(("cuda", "name"), [(None, "the CPU"), ("13.2", "CUDA 13.2")])
def test_torch_says_what_it_was_built_for(build, cuda, name):
    build(cuda=cuda)
    assert check_torch() == Finding("torch", "ok", f"Torch {torch.__version__}, built for {name}")


def test_a_build_for_rocm_is_worth_a_note(build):
    build(hip="6.4")
    text = f"Torch {torch.__version__}, built for ROCm 6.4"
    assert check_torch() == Finding("torch", "note", text, "devices of ROCm are not supported; the CPU is")


DRIVER = "NVIDIA driver 580.65, CUDA 13.0"


@pytest.mark.parametrize(
    ("machine", "state", "text", "remedy"),
    [
        ({}, "missing", "no NVIDIA driver, and Torch is a build for the CPU", ""),
        (
            {"driver": DRIVER},
            "missing",
            f"{DRIVER} is there, but Torch is a build without CUDA",
            "uv pip install --torch-backend=auto --reinstall torch",
        ),
        ({"cuda": "13.2"}, "missing", "no device: no NVIDIA driver", ""),
        (
            {"cuda": "13.2", "driver": DRIVER, "visible": ""},
            "missing",
            f"no device: {DRIVER}; CUDA_VISIBLE_DEVICES=''",
            "",
        ),
        (
            {"cuda": "13.2", "driver": DRIVER},
            "broken",
            f"{DRIVER} is there, but Torch, built for CUDA 13.2, finds no device",
            "update NVIDIA's driver, or install a Torch of its CUDA version",
        ),
    ],
)
def test_cuda_that_does_not_work_is_broken_only_where_driver_and_build_are_there(
    build, machine, state, text, remedy
):
    build(**machine)
    assert check_cuda() == Finding("CUDA", state, text, remedy)


def test_cuda_devices_are_named_and_each_computes(build, monkeypatch):
    card = SimpleNamespace(name="A Card", major=9, minor=0, total_memory=141 * 2**30)
    build(cuda="13.2", driver=DRIVER, devices=(card, card))
    ones, used = torch.ones, []
    monkeypatch.setattr(torch, "ones", lambda size, device: (used.append(device), ones(size))[1])
    text = f"cuda:0 A Card (sm_90, 141 GiB), cuda:1 A Card (sm_90, 141 GiB); {DRIVER}"
    assert check_cuda() == Finding("CUDA", "ok", text)
    assert used == ["cuda:0", "cuda:1"]


def test_the_driver_is_read_from_its_file(monkeypatch, tmp_path):
    file = tmp_path / "version"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n")
    monkeypatch.setattr(doctor_checks, "_NVIDIA", file)
    monkeypatch.setattr(doctor_checks.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert check_cuda().text == "NVIDIA driver 580.65.06 is there, but Torch is a build without CUDA"


# ---------------------------------------------------------------- threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes this another machine: cores, those of the process, Torch's threads, a container's share, variables."""

    def make(cores, usable, threads, *, quota="max 100000", policy="PASSIVE", number=None):
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
        monkeypatch.setattr(doctor_checks, "_CGROUP_CPU", tmp_path / "cpu.max")
        for name, value in (("OMP_WAIT_POLICY", policy), ("OMP_NUM_THREADS", number)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)

    return make


def test_threads_that_fit_the_cores_are_ok(machine):
    machine(8, 4, 4, number="4")
    text = "8 cores; 4 for this process; Torch computes on 4; OMP_WAIT_POLICY=PASSIVE; OMP_NUM_THREADS=4"
    assert check_threads() == Finding("threads", "ok", text)


@pytest.mark.parametrize(("policy", "shown"), [(None, "not set"), ("ACTIVE", "ACTIVE")])
def test_threads_that_spin_are_worth_advice(machine, policy, shown):
    machine(2, 2, 2, policy=policy)
    found = check_threads()
    assert found.state == "note"
    assert f"OMP_WAIT_POLICY={shown}; OMP_NUM_THREADS=not set" in found.text
    assert found.remedy == (
        "set OMP_WAIT_POLICY=PASSIVE before Torch is imported: threads that spin take cores from physics"
    )


def test_more_threads_than_the_process_has_cores_are_worth_advice(machine):
    machine(64, 2, 32)
    assert check_threads().remedy == "set OMP_NUM_THREADS=2"


def test_a_container_that_gives_time_on_fewer_cores_is_seen(machine):
    machine(64, 64, 64, quota="250000 100000")
    found = check_threads()
    assert found.text.startswith("64 cores; 64 for this process; time on 2.5 of them; Torch computes on 64;")
    assert found.remedy == (
        "set OMP_NUM_THREADS=2; give SimCfg.num_threads=2: physics counts cores, not what may be used of them"
    )
