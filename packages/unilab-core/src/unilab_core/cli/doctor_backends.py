"""The checks of `unilab doctor` that concern a backend: its own ones, and whether it runs a scene or a task."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from unisim.doctor import CompilationRefused, Finding, KernelReport, find_doctor
from unisim.errors import CapabilityError, ConfigError

if TYPE_CHECKING:
    import torch

    from unisim.contract import SimBackend

__all__ = ["compiles_kernels", "names_of_checks", "own_check", "try_backend"]

_STEPS = 2


def names_of_checks(backend: str) -> list[str] | None:
    """Returns the names of a backend's own checks, or None: it brings no doctor.

    Raises:
        Exception: Its doctor cannot be made.
    """
    doctor = find_doctor(backend)
    return None if doctor is None else list(doctor.checks())


def compiles_kernels(backend: str) -> bool:
    """Whether a backend's doctor watches kernels; asked of the class, so that no engine is imported."""
    from unisim.doctor import BackendDoctor

    doctor = find_doctor(backend)
    return doctor is not None and type(doctor).kernels is not BackendDoctor.kernels


def own_check(backend: str, check: str) -> Finding:
    """Makes one of a backend's own checks."""
    doctor = find_doctor(backend)
    assert doctor is not None
    return doctor.checks()[check]()


def try_backend(
    backend: str, *, task: str | None, device: str | None, num_envs: int, warm: bool, command: str
) -> Finding:
    """Steps and resets a task, or a small scene, and says what came of it.

    Args:
        backend: Its name.
        task: A registered task; None: the sample scene.
        device: Torch device; None: CUDA where there is a device, else the CPU.
        num_envs: N.
        warm: Whether kernels that are not in the cache are compiled; else the first such ends the attempt.
        command: What to type to have them compiled.
    """
    device = device or _best_device()
    what = f"task {task!r}" if task else "a small scene"
    doctor = find_doctor(backend)
    if not task and doctor is not None and not doctor.runs_sample_scene:
        return _other_scenes(backend)
    watch: AbstractContextManager[KernelReport] | None = None
    if doctor is not None:
        if warm:
            _show_progress()
        watch = doctor.kernels(f"backend {backend!r}, {what}", allow_compiling=warm)
    try:
        with watch or nullcontext() as kernels:
            _run_task(task, backend, device, num_envs) if task else _run_scene(backend, device, num_envs)
    except CompilationRefused as refused:
        text = f"kernels for {what} on {device} are not in the cache, {refused} for one"
        return Finding("run", "note", text, f"{command} compiles them once, which may take a minute or more")
    except CapabilityError as error:
        return Finding("run", "missing", f"{what} on {device}: {error}")
    except ConfigError as error:
        # A backend of another format is sound; one whose doctor lays claim to the scene must run it.
        if task or doctor is not None:
            raise
        found = _other_scenes(backend)
        remedy = f"{found.remedy}; it may add a doctor of its own, group unisim.doctors"
        return replace(found, text=f"{found.text}: {error}", remedy=remedy)
    done = Finding("run", "ok", f"stepped and reset {num_envs} rows of {what} on {device}")
    return done if kernels is None else _with_kernels(done, kernels)


def _other_scenes(backend: str) -> Finding:
    unilab = os.environ.get("UNILAB_COMMAND") or "unilab"  # a launcher puts something in front of the command
    remedy = f"{unilab} doctor TASK --backend {backend} tries it with a task of its own"
    return Finding("run", "note", "it takes another kind of scene than the small one", remedy)


def _best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _with_kernels(done: Finding, kernels: KernelReport) -> Finding:
    if not kernels.cached and not kernels.compiled:
        text = f"{done.text}; no kernel was seen being loaded, so that nothing can be said of the cache"
        return replace(done, state="note", text=text)
    text = f"{done.text}; {kernels.cached} kernel modules from the cache"
    if kernels.compiled:
        text += f", {kernels.compiled} compiled in {kernels.compile_s:.0f} s"
    return replace(done, text=text)


def _run_task(task: str, backend: str, device: str, num_envs: int) -> None:
    import torch

    from unilab_core.factory import make_env

    with make_env(task, backend=backend, device=device, num_envs=num_envs) as env:
        env.reset()
        actions = torch.zeros(env.num_envs, env.num_actions, device=env.device)
        for _ in range(_STEPS):
            env.step(actions)
        env.reset(torch.tensor([0]))
        env.load_state_dict(env.state_dict())


def _run_scene(backend: str, device: str, num_envs: int) -> None:
    from unisim.contract import Declared
    from unisim.factory import make_backend
    from unisim.sample_scene import SAMPLE_SIM, sample_scene

    # One field whose change needs derived constants, as most tasks that randomise have.
    declared = Declared(model_fields=("body_mass",))
    made = make_backend(
        backend, sample_scene(), SAMPLE_SIM, num_envs=num_envs, device=device, declared=declared
    )
    try:
        _use(made, made.get_state_views(("qpos",))["qpos"])
    finally:
        made.close()


def _use(made: SimBackend, qpos: torch.Tensor) -> None:
    """Calls every part of a backend that moves or reads rows."""
    import torch

    from unisim.reset import ResetPayload

    rows = torch.zeros(len(qpos), dtype=torch.bool, device=qpos.device)
    rows[0] = True
    first = torch.tensor([0], device=qpos.device)
    made.step_tensor(torch.zeros(len(qpos), made.model_layout.nu, device=qpos.device), nsteps=_STEPS)
    made.apply_reset(rows, ResetPayload(first, qpos=qpos[:1].clone()))
    made.write_rows(rows, ResetPayload(first, qpos=qpos[:1].clone()))
    if not bool(made.bad_rows().any()):
        made.restore(made.snapshot())
        return
    raise RuntimeError("the sample scene does not stay finite")


def _show_progress() -> None:
    """Sends what is logged about the compilation to stderr, one line for each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("unisim")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
