"""Steps per second, what of them is physics, what graphs and resets cost, and memory per row."""

from __future__ import annotations

import gc
from functools import partial

import torch

from gpu_checks.reporting import Report
from gpu_checks.scenes import mask_of, per_second, synchronize
from gpu_checks.tasks import CARTPOLE, QUADRUPED, RESIDENT
from unilab_core import TorchEnv, load_env_cfg, make_env
from unisim import Declared, ResetPayload, SimBackend, make_backend

__all__ = ["measure_cartpole", "measure_graphs", "measure_quadruped"]

SIZES = (1024, 4096, 16384, 32768)
DRY_SIZES = (2, 4)
MOST = 400
"""Most steps of one measurement."""


def measure_cartpole(report: Report) -> None:
    """Steps per second of cart-pole at 1k to 32k rows."""
    _measure(report, CARTPOLE)


def measure_quadruped(report: Report) -> None:
    """Steps per second of the quadruped at 1k to 32k rows."""
    _measure(report, QUADRUPED)


def _measure(report: Report, task: str) -> None:
    """Each size: a whole step, physics alone, resets of k rows, memory. Nothing is judged but that it runs."""
    for n in report.pick(SIZES, DRY_SIZES):
        try:
            report.figure(str(n), _measure_size(report, task, n))
        except torch.OutOfMemoryError as error:
            report.expect(False, f"{n} rows: out of memory: {error}")
            return
        gc.collect()
        if torch.device(report.device).type == "cuda":
            torch.cuda.empty_cache()


def _free(report: Report) -> int:
    """Returns the bytes that are free on the device; 0 on the CPU."""
    if torch.device(report.device).type != "cuda":
        return 0
    synchronize(report)
    return torch.cuda.mem_get_info(report.device)[0]


def _measure_size(report: Report, task: str, n: int) -> dict[str, float]:
    seconds, most = report.pick(1.5, 0.05), report.pick(MOST, 3)
    before = _free(report)
    with make_env(task, backend=RESIDENT, device=report.device, num_envs=n) as env:
        env.reset()
        used = before - _free(report)
        step = partial(env.step, _actions(env))
        env_rate = per_second(report, step, seconds=seconds, most=most)
        found = {
            "env_steps_per_s": round(n * env_rate),
            "env_step_ms": round(1e3 / env_rate, 3),
            "memory_kib_per_row": round(used / n / 1024, 2),
        }
        for k in sorted({1, n // 16 or 1, n}):
            ids = torch.arange(k, device=env.device)
            rate = per_second(report, partial(env.reset, ids), seconds=seconds / 4, most=most)
            found[f"env_reset_{k}_rows_ms"] = round(1e3 / rate, 3)
        declared = env.declared
    found |= _physics(report, task, n, declared, seconds=seconds, most=most)
    # What is left of a step when physics is taken away: managers, terms, verdicts and the resets of rows that end.
    found["managers_share"] = round(1.0 - found["physics_ms"] / found["env_step_ms"], 3)
    report.expect_on_gpu(used > 0, f"{n} rows: no memory was taken")
    return found


def _actions(env: TorchEnv) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = 2.0 * torch.rand(env.num_envs, env.num_actions, generator=generator) - 1.0
    return (0.2 * drawn).to(env.device)


def _physics(
    report: Report, task: str, n: int, declared: Declared, *, seconds: float, most: int, capture: bool = True
) -> dict[str, float]:
    """The backend of a task alone: control steps and resets per second."""
    cfg = load_env_cfg(task, num_envs=n, overrides={"sim.graph_capture": capture})
    backend = make_backend(RESIDENT, cfg.scene, cfg.sim, num_envs=n, device=report.device, declared=declared)
    ctrl = torch.zeros(n, backend.model_layout.nu, device=report.device)
    ctrl += backend.get_state_views()["ctrl"]
    rate = per_second(report, partial(backend.step_tensor, ctrl, cfg.decimation), seconds=seconds, most=most)
    found = {"physics_steps_per_s": round(n * rate), "physics_ms": round(1e3 / rate, 3)}
    if capture:
        found |= _reset_cost(report, backend, seconds=seconds, most=most)
    backend.close()
    return found


def _reset_cost(report: Report, backend: SimBackend, *, seconds: float, most: int) -> dict[str, float]:
    n, found = backend.num_envs, {}
    for k in sorted({1, n // 16 or 1, n}):
        ids = torch.arange(k, device=report.device)
        reset = partial(backend.apply_reset, mask_of(ids, n), ResetPayload(ids))
        rate = per_second(report, reset, seconds=seconds / 4, most=most)
        found[f"backend_reset_{k}_rows_ms"] = round(1e3 / rate, 3)
    return found


def measure_graphs(report: Report) -> None:
    """What replaying graphs saves, at 4,096 rows of each task."""
    n = report.pick(4096, 2)
    seconds, most = report.pick(1.5, 0.05), report.pick(MOST, 3)
    for task in report.pick((CARTPOLE, QUADRUPED), (CARTPOLE,)):
        rates = {
            capture: _physics(
                report, task, n, Declared(decimation=4), seconds=seconds, most=most, capture=capture
            )
            for capture in (True, False)
        }
        for capture, found in rates.items():
            report.figure(f"{task} {'with' if capture else 'without'} graphs", found)
        gain = rates[True]["physics_steps_per_s"] / rates[False]["physics_steps_per_s"]
        report.figure(f"{task} gain", round(gain, 2))
        report.expect_on_gpu(gain > 1.0, f"{task}: graphs make it slower, by a factor of {gain:.2f}")
