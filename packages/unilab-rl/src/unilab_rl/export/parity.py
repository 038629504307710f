"""Compares the written files of a policy with the policy itself."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from unilab_core import NonFiniteError
from unilab_rl.contracts.algorithm import Policy
from unilab_rl.export.observations import Spread
from unilab_rl.export.onnx_graph import ACTIONS, TARGETS
from unilab_rl.export.program import OBS
from unilab_rl.export.targets import TargetLaw
from unilab_rl.export.torchscript import load_torchscript

__all__ = ["BATCHES", "DEVIATIONS", "TOLERANCE", "Outputs", "ParityError", "check_parity", "runners"]

TOLERANCE = 1e-5
"""Largest difference, over the largest number of the policy's at the same distance, or over 1 where that is smaller."""

DEVIATIONS = (1.0, 10.0, 50.0)
"""How far observations lie from their mean, in standard deviations; each distance is judged by itself."""

BATCHES = (1, 7)
_ROWS = 105  # at each distance: 15 batches of 7, and as many of 1

Outputs = tuple[torch.Tensor, torch.Tensor | None]
"""Actions, and targets where the law of them is known, each (B, A)."""


class ParityError(RuntimeError):
    """A file doesn't do what the policy does; says which, and by how much."""


def check_parity(
    policy: Policy,
    law: TargetLaw | None,
    spread: Spread,
    files: Mapping[str, Callable[[torch.Tensor], Outputs]],
    device: torch.device,
) -> dict[str, float]:
    """Returns the worst difference of each file, as a share of what `TOLERANCE` is one of.

    Args:
        policy: The policy that was trained.
        law: From its actions to targets.
        spread: Where observations lie.
        files: What runs each file, by what it is called: from observations (B, O) on the CPU.
        device: Where the policy is.

    Raises:
        ParityError: A file differs by more than `TOLERANCE`, or a number of it is not finite.
        NonFiniteError: An action of the policy is not finite.
    """
    generator = torch.Generator().manual_seed(0)
    worst = dict.fromkeys(files, 0.0)
    for deviations in DEVIATIONS:
        rows = spread.draw(_ROWS, deviations, generator)
        actions = policy({OBS: rows.to(device)}).detach().cpu()
        if not bool(actions.isfinite().all()):
            raise NonFiniteError(
                f"the policy's actions are not finite on observations {deviations:g} standard deviations from the mean"
            )
        expected = (actions, None if law is None else law(actions))
        for name, run in files.items():
            for size in BATCHES:
                found = _in_batches(run, rows, size)
                difference = _difference(found, expected)
                if not difference <= TOLERANCE:  # a NaN is no agreement
                    raise ParityError(
                        f"{name} differs from the policy by {difference:.2g} in batches of {size}, on observations up "
                        f"to {deviations:g} standard deviations from their mean; expected at most {TOLERANCE:g} of "
                        "the largest number. Nothing was written"
                    )
                worst[name] = max(worst[name], difference)
    return worst


def _in_batches(run: Callable[[torch.Tensor], Outputs], rows: torch.Tensor, size: int) -> Outputs:
    rows = rows[: 15 * size]
    parts = [run(rows[start : start + size]) for start in range(0, rows.shape[0], size)]
    targets = [part for _, part in parts if part is not None]
    return torch.cat([part for part, _ in parts]), torch.cat(targets) if targets else None


def _difference(found: Outputs, expected: Outputs) -> float:
    """Returns the largest difference over the largest number of the policy's, or over 1."""
    worst = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None or ours is None:
            if theirs is not ours:
                return float("nan")
            continue
        scale = max(1.0, float(theirs.abs().max()))
        difference = float((ours - theirs[: ours.shape[0]]).abs().max()) / scale
        worst = difference if difference != difference else max(worst, difference)
    return worst


def runners(folder: Path) -> dict[str, Callable[[torch.Tensor], Outputs]]:
    """Returns what runs each file of an export, by the file's name."""
    found = {"policy.npz": _numpy(folder)}
    if (folder / "policy.onnx").exists():
        found["policy.onnx"] = _onnx(folder / "policy.onnx")
    if (folder / "policy.pt").exists():
        found["policy.pt"] = _torchscript(folder / "policy.pt")
    return found


def _numpy(folder: Path) -> Callable[[torch.Tensor], Outputs]:
    # The very file that is handed over, run without leaving a trace beside it.
    runner = runpy.run_path(str(folder / "policy_runner.py"))["PolicyRunner"](folder)

    def run(obs: torch.Tensor) -> Outputs:
        actions, targets = runner(obs.numpy())
        return torch.from_numpy(actions), None if targets is None else torch.from_numpy(targets)

    return run


def _onnx(path: Path) -> Callable[[torch.Tensor], Outputs]:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(obs: torch.Tensor) -> Outputs:
        results = dict(zip(names, session.run(names, {OBS: obs.numpy()}), strict=True))
        targets = results.get(TARGETS)
        return torch.from_numpy(results[ACTIONS]), None if targets is None else torch.from_numpy(targets)

    return run


def _torchscript(path: Path) -> Callable[[torch.Tensor], Outputs]:
    module = load_torchscript(path)

    def run(obs: torch.Tensor) -> Outputs:
        with torch.no_grad():
            made = module(obs)
        return made if isinstance(made, tuple) else (made, None)

    return run
