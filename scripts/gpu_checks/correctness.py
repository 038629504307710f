"""Whether the device computes what it should: against MuJoCo, with and without graphs, by the conformance suite."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import torch

from gpu_checks.reporting import Report
from gpu_checks.scenes import hold, make_quadruped, mask_of, reads_of, synchronize
from gpu_checks.tasks import HOST
from unisim import ResetPayload, SimBackend

__all__ = ["check_capture", "check_conformance", "check_overflow", "check_parity"]

ROOT = Path(__file__).resolve().parents[2]
SUITE = "packages/unisim/tests/test_conformance.py::TestMuJoCoWarp"
SUITE_S = 150
"""Most seconds of one test of the suite."""
_ATOL, _RTOL = 1e-4, 1e-3
_ROWS = (1, 2)
"""Rows that are reset in the middle of a rollout."""


def _controls(backend: SimBackend, steps: int) -> list[torch.Tensor]:
    """Returns controls about the default pose in host memory, (N, A) float32 each."""
    held = hold(backend).cpu()
    generator = torch.Generator().manual_seed(0)
    return [held + 0.1 * (2.0 * torch.rand(held.shape, generator=generator) - 1.0) for _ in range(steps)]


def _reset_some(backend: SimBackend) -> None:
    """Lifts and turns two rows."""
    device = backend.get_state_views()["qpos"].device
    ids = torch.tensor(_ROWS, device=device)
    qpos = torch.tensor(backend.model_layout.default_qpos, device=device).repeat(len(_ROWS), 1)
    qpos[:, 2] += 0.05
    qpos[:, 3:7] = torch.tensor([0.9689124, 0.0, 0.0, 0.247404], device=device)  # 0.5 rad about z
    backend.apply_reset(mask_of(ids, backend.num_envs), ResetPayload(ids, qpos))


def _distance(one: SimBackend, other: SimBackend) -> float:
    """Returns the largest difference of positions."""
    positions = [each.get_state_views()["qpos"].cpu() for each in (one, other)]
    return float((positions[0] - positions[1]).abs().max())


def check_parity(report: Report) -> None:
    """A rollout of a quadruped on its feet, and across a masked reset, is MuJoCo's."""
    rows, steps = report.pick(64, 4), 100
    here, there = make_quadruped(report, rows), make_quadruped(report, rows, backend=HOST)
    hold(here)
    worst_reads: dict[str, float] = {}
    worst = worst_after = 0.0
    for number, ctrl in enumerate(_controls(there, 2 * steps)):
        if number == steps:
            for each in (here, there):
                _reset_some(each)
        here.step_tensor(ctrl.to(report.device), 1)
        there.step_tensor(ctrl, 1)
        distance = _distance(here, there)
        worst, worst_after = (
            (max(worst, distance), 0.0) if number < steps else (worst, max(worst_after, distance))
        )
        if number % 25 == 24 or number == steps:
            for key, excess in _excess(reads_of(here), reads_of(there), _of_accelerations(there)).items():
                worst_reads[key] = max(worst_reads.get(key, 0.0), excess)
    report.at_most("qpos_difference_100_steps", worst, 1e-5)
    report.at_most("qpos_difference_after_a_masked_reset", worst_after, 1e-5)
    report.figure("reads_compared", len(worst_reads))
    for key, excess in worst_reads.items():
        report.expect(
            excess <= 1.0,
            f"{key} differs by {excess:.2f} times what is allowed ({_ATOL:g} + {_RTOL:g} x value)",
        )
    report.figure("worst_read", max(worst_reads.items(), key=lambda item: item[1]))
    for each in (here, there):
        each.close()


def _of_accelerations(backend: SimBackend) -> set[str]:
    """Returns the keys of reads that describe forces and accelerations."""
    sensors = {f"sensor:{s.name}" for s in backend.model_layout.sensors if s.stage == "acceleration"}
    return sensors | set(backend.get_tensor_capabilities().acceleration_fields)


def _excess(
    found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], accelerations: set[str]
) -> dict[str, float]:
    """Returns the largest difference of each read in units of what is allowed.

    An acceleration near zero is a small difference of large forces: it is measured by the largest of its row.
    """
    result = {}
    for key, values in wanted.items():
        got, size = found[key], values.abs()
        if key.startswith(("body:", "site:")):  # q and -q are the same orientation
            sign = torch.where((got[:, 3:7] * values[:, 3:7]).sum(dim=1, keepdim=True) < 0.0, -1.0, 1.0)
            got = torch.cat([got[:, :3], sign * got[:, 3:7], got[:, 7:]], dim=1)
        if key in accelerations:
            size = size.amax(dim=1, keepdim=True)
        result[key] = float(((got - values).abs() / (_ATOL + _RTOL * size)).max())
    return result


def check_capture(report: Report) -> None:
    """Graphs that are replayed do what their launches do one by one; rows that are not selected keep every bit."""
    rows, steps = report.pick(256, 4), report.pick(100, 20)
    captured, again, launched = (
        make_quadruped(report, rows, sim={"graph_capture": capture}) for capture in (True, True, False)
    )
    told = {item.name: item for item in captured.get_runtime_diagnostics()}
    report.expect(told["graph_capture"].enabled, f"graphs are not captured: {told['graph_capture'].reason}")
    report.figure("solver_loop_in_graph", told["solver_loop_in_graph"].enabled)
    report.figure("solver_loop_reason", told["solver_loop_in_graph"].reason)
    off = {item.name: item for item in launched.get_runtime_diagnostics()}["graph_capture"]
    report.expect(not off.enabled and bool(off.reason), "sim.graph_capture=False is not reported")
    between, noise = 0.0, 0.0
    controls = [ctrl.to(report.device) for ctrl in _controls(captured, steps)]
    for each in (again, launched):
        hold(each)
    for number, ctrl in enumerate(controls):
        if number == steps // 2:
            for each in (captured, again, launched):
                _expect_others_unchanged(report, each)
        for each in (captured, again, launched):
            each.step_tensor(ctrl, 4)
        between = max(between, _distance(captured, launched))
        noise = max(noise, _distance(captured, again))
    report.figure("two_runs_with_graphs_differ_by", noise)  # threads of a GPU add in any order
    report.at_most("with_and_without_graphs_differ_by", between, max(report.pick(1e-5, 0.0), 10.0 * noise))
    for each in (captured, again, launched):
        each.close()


def _expect_others_unchanged(report: Report, backend: SimBackend) -> None:
    before = reads_of(backend)
    _reset_some(backend)
    others = [row for row in range(backend.num_envs) if row not in _ROWS]
    for key, values in reads_of(backend).items():
        report.expect(
            torch.equal(values[others], before[key][others]), f"a reset of other rows changed a bit of {key}"
        )


def check_overflow(report: Report) -> None:
    """Too little room is reported with the setting to change; what is reserved by itself suffices for falls."""
    heard = _Heard()
    logging.getLogger("unisim").addHandler(heard)
    for setting, sim in (
        ("sim.nconmax", {"nconmax": 1, "njmax": 400}),
        ("sim.njmax", {"nconmax": 60, "njmax": 4}),
    ):
        told = _fall(report, heard, sim)
        report.figure(f"told_of_{setting}", told)
        report.expect(
            any(f"raise {setting}" in text for text in told), f"no overflow names {setting}: {told}"
        )
        report.expect(len(told) == len(set(told)), f"an overflow was reported twice: {told}")
    told = _fall(report, heard, {})
    report.expect(not told, f"robots that fall need more room than is reserved: {told}")


class _Heard(logging.Handler):
    """Keeps warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one."""
        self.texts.append(record.getMessage())


def _fall(report: Report, heard: _Heard, sim: dict[str, int]) -> list[str]:
    """Lets rows fall from random orientations; returns what was said of overflows."""
    rows = report.pick(1024, 8)
    heard.texts.clear()
    backend = make_quadruped(report, rows, sim=sim)
    generator = torch.Generator().manual_seed(3)
    qpos = torch.tensor(backend.model_layout.default_qpos).repeat(rows, 1)
    qpos[:, 3:7] = torch.nn.functional.normalize(torch.randn(rows, 4, generator=generator), dim=1)
    ids = torch.arange(rows, device=report.device)
    backend.apply_reset(mask_of(ids, rows), ResetPayload(ids, qpos.to(report.device)))
    ctrl = torch.zeros(rows, backend.model_layout.nu, device=report.device)
    for _ in range(report.pick(150, 40)):
        backend.step_tensor(ctrl, 4)
        synchronize(report)  # so that each call finds what the last one found
    bad = int(backend.bad_rows().sum())
    report.figure(f"bad_rows_with_{'_'.join(f'{k}_{v}' for k, v in sim.items()) or 'defaults'}", bad)
    backend.close()
    return [text for text in heard.texts if "too many" in text]


def check_conformance(report: Report) -> None:
    """The conformance suite passes on the device; what one call must not change stays exact."""
    evidence = report.folder / "evidence"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"]
    command += [f"--timeout={SUITE_S}", SUITE, *report.pick([], ["-k", "reset"])]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "UNISIM_WARP_DEVICE": report.device, "UNISIM_CONFORMANCE_EVIDENCE": str(evidence)},
        capture_output=True,
        text=True,
        check=False,
    )
    for file in sorted(evidence.glob("*.json")):
        content = json.loads(file.read_text())
        report.figure("summary", content["summary"])
        report.figure("evidence", content)
        for sentence, found in content["sentences"].items():
            reasons = [t["reason"] for t in found["tests"].values() if t["outcome"] == "failed"]
            report.expect(found["outcome"] != "failed", f"{sentence}: {'; '.join(reasons)}")
    report.expect(done.returncode == 0, f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
