"""The order of work between the backend's stream and others: with a wait always right, without one seen to be wrong."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

import torch

from gpu_checks.reporting import Report
from gpu_checks.scenes import hold, make_quadruped, mask_of, synchronize
from unisim import ResetPayload, SimBackend
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend

__all__ = ["check_streams"]

LONG_S = 0.02
"""A step takes at least so long, so that a read which does not wait for it comes too early."""


def check_streams(report: Report) -> None:
    """Reads on a side stream are right with the token's wait; the same reads without it are stale."""
    backend = make_quadruped(report, report.pick(8192, 4))
    assert isinstance(backend, MuJoCoWarpBackend)
    ctrl = hold(backend)
    nsteps = _long_enough(report, backend, ctrl)
    tries = report.pick(12, 2)
    side = _stream(report)
    stale = sum(_differs(report, backend, ctrl, nsteps, side, waits=False) for _ in range(tries))
    wrong = sum(_differs(report, backend, ctrl, nsteps, side, waits=True) for _ in range(tries))
    report.figure("substeps", nsteps)
    report.figure("stale_without_a_wait", f"{stale} of {tries}")
    report.figure("wrong_with_a_wait", f"{wrong} of {tries}")
    report.expect_on_gpu(
        stale > 0, "no read without a wait was stale: this check could not see a missing wait"
    )
    report.expect(wrong == 0, f"{wrong} of {tries} reads on a side stream are wrong though they waited")
    _check_callers_own_stream(report, backend, ctrl, nsteps)
    _check_resets(report, backend, ctrl, nsteps, side)
    backend.close()


def _stream(report: Report) -> torch.cuda.Stream | None:
    device = torch.device(report.device)
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch annotates nothing here


def _on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def _long_enough(report: Report, backend: SimBackend, ctrl: torch.Tensor) -> int:
    """Returns how many substeps last long."""
    nsteps = report.pick(16, 2)
    while True:
        backend.step_tensor(ctrl, nsteps)  # the first one captures
        synchronize(report)
        began = time.perf_counter()
        backend.step_tensor(ctrl, nsteps)
        synchronize(report)
        took = time.perf_counter() - began
        if took >= LONG_S or report.dry or nsteps >= 512:
            report.figure("step_s", round(took, 4))
            return nsteps
        nsteps *= 2


def _differs(
    report: Report,
    backend: MuJoCoWarpBackend,
    ctrl: torch.Tensor,
    nsteps: int,
    side: torch.cuda.Stream | None,
    *,
    waits: bool,
) -> bool:
    """Steps, reads on a side stream at once, and returns whether that is not what the step led to."""
    view = backend.get_state_views()["qpos"]
    copy = torch.empty_like(view)
    synchronize(report)
    backend.step_tensor(ctrl, nsteps)
    token = backend.completion()
    with _on(side):
        if waits:
            token.wait_before_read(side)
        copy.copy_(view)
    synchronize(report)
    return not torch.equal(copy, view)


def _check_callers_own_stream(
    report: Report, backend: MuJoCoWarpBackend, ctrl: torch.Tensor, nsteps: int
) -> None:
    """The stream that calls needs no wait, before or after: neither the default one nor one of its own."""
    view = backend.get_state_views()["qpos"]
    for name, stream in (("the default stream", None), ("a stream of its own", _stream(report))):
        with _on(stream):
            given = ctrl + 0.1
            given -= 0.1  # the control itself is made on that stream just before
            backend.step_tensor(given, nsteps)
            copy = view.clone()
            given.fill_(float("nan"))  # what the caller does next must not reach the step
        synchronize(report)
        report.expect(torch.equal(copy, view), f"a read on {name}, which made the step, is not the step's")
        report.expect(
            not bool(backend.bad_rows().any()), f"a later write on {name} reached the step's control"
        )


def _check_resets(
    report: Report,
    backend: MuJoCoWarpBackend,
    ctrl: torch.Tensor,
    nsteps: int,
    side: torch.cuda.Stream | None,
) -> None:
    """A reset is in order too: after the step before it, and seen by who waits for it."""
    ids = torch.arange(0, backend.num_envs, 2, device=report.device)
    default = torch.tensor(backend.model_layout.default_qpos, device=report.device)
    view = backend.get_state_views()["qpos"]
    copy = torch.empty_like(view)
    synchronize(report)
    backend.step_tensor(ctrl, nsteps)
    backend.apply_reset(mask_of(ids, backend.num_envs), ResetPayload(ids))
    token = backend.completion()
    with _on(side):
        token.wait_before_read(side)
        copy.copy_(view)
    token.synchronize()
    report.expect(token.done(), "a token that was waited for is not done")
    synchronize(report)
    report.expect(torch.equal(copy, view), "a read on a side stream is wrong though it waited for a reset")
    report.expect(
        torch.equal(copy[ids], default.expand(ids.numel(), -1)),
        "rows reset right after a step do not hold the default",
    )
