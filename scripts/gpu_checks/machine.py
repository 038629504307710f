"""What the machine is, that it runs this checkout, and its kernels."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path

from gpu_checks.reporting import Report
from gpu_checks.tasks import CARTPOLE, QUADRUPED, RESIDENT

__all__ = ["compile_kernels", "look"]

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("unisim", "unilab_core", "unilab_managers", "unilab_rl", "unilab_tasks")
_VERSIONS = ("torch", "mujoco", "mujoco-warp", "warp-lang", "numpy", "rsl-rl-lib", "tensordict")
MODELS = ("leg", "scene", CARTPOLE, QUADRUPED)
"""The conformance suite's, that of the other checks, and the tasks."""


def look(report: Report) -> None:
    """Records device and versions; finds whether the installed packages are those of this checkout."""
    import torch

    report.figure("python", platform.python_version())
    report.figure("cpus", os.cpu_count())
    for name in _VERSIONS:
        report.figure(name, _version(name))
    for package in _PACKAGES:
        for problem in _differences(package):
            report.expect(False, problem)
    is_cuda = torch.device(report.device).type == "cuda"
    report.expect_on_gpu(torch.cuda.is_available(), "torch finds no CUDA device")
    if is_cuda and torch.cuda.is_available():
        found = torch.cuda.get_device_properties(report.device)
        free, total = torch.cuda.mem_get_info(report.device)
        report.figure("device", found.name)
        report.figure("compute_capability", f"{found.major}.{found.minor}")
        report.figure("memory_gib", round(total / 2**30, 1))
        report.figure("memory_free_gib", round(free / 2**30, 1))
        report.figure("torch_cuda", torch.version.cuda)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _differences(package: str) -> list[str]:
    """Returns what is wrong with an installed package: not there, or of another state than this checkout."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return [f"{package} is not installed; see docs/gpu-check.md"]
    installed = Path(spec.submodule_search_locations[0])
    source = ROOT / "packages" / package.replace("_", "-") / "src" / package
    if installed.resolve() == source.resolve():
        return []
    for file in sorted(source.rglob("*.py")):
        there = installed / file.relative_to(source)
        if not there.is_file() or there.read_bytes() != file.read_bytes():
            name = file.relative_to(source.parent)
            return [f"{package} was not built from this checkout: {name} differs; carry it again"]
    return []


def compile_kernels(report: Report) -> None:
    """Builds and steps each model that is checked, side by side: what is in the kernel cache costs nobody later."""
    models = report.pick(MODELS, MODELS[:1])
    context = get_context("spawn")
    with ProcessPoolExecutor(len(models), mp_context=context) as pool:
        waiting = {model: pool.submit(_build, model, report) for model in models}
        for model, result in waiting.items():
            report.figure(f"{model}_s", result.result())


def _build(model: str, report: Report) -> float:
    """Returns how many seconds making, stepping and resetting four rows takes."""
    import torch

    from gpu_checks.scenes import make_quadruped, mask_of
    from unilab_core import make_env
    from unisim import ResetPayload

    began = time.perf_counter()
    ids = torch.tensor([1], device=report.device)
    if model == "leg":
        os.environ["UNISIM_WARP_DEVICE"] = report.device
        sys.path.insert(0, str(ROOT / "packages" / "unisim" / "tests" / "support"))
        suite = importlib.import_module("conforming").MuJoCoWarpSuite()
        backend = suite.make_backend(4)
        suite.run(backend, 1)
        suite.reset(backend, [1])
        backend.close()
    elif model == "scene":
        backend = make_quadruped(report, 4)
        backend.step_tensor(torch.zeros(4, backend.model_layout.nu, device=report.device), 1)
        backend.apply_reset(mask_of(ids, 4), ResetPayload(ids))
        backend.close()
    else:
        with make_env(model, backend=RESIDENT, device=report.device, num_envs=4) as env:
            env.reset()
            env.step(torch.zeros(4, env.num_actions, device=env.device))
            env.reset(ids)
    return round(time.perf_counter() - began, 1)
