"""Writes a policy as files, all of them or none, after each was found to do what the policy does."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch

from unilab_core import CapabilityError
from unilab_rl.contracts.algorithm import ExportablePolicy, Policy
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.export.lowering import lower
from unilab_rl.export.metadata import Source, check_description, metadata
from unilab_rl.export.observations import observed_spread
from unilab_rl.export.parity import check_parity, runners
from unilab_rl.export.program import OBS, PolicyProgram
from unilab_rl.export.targets import TargetLaw, UnknownTargetError, target_law

__all__ = ["FORMATS", "Exported", "Format", "export_policy", "require_export"]

Format = Literal["onnx", "torchscript"]
FORMATS: tuple[Format, ...] = ("onnx", "torchscript")
_RUNNER = "policy_runner.py"
_PROPERTY = "policy.json"  # what the metadata inside of the other files is called


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: Where.
        files: Names of the files in it.
        parity: The worst difference between each file and the policy; see `check_parity`.
        no_targets: Why the targets of joints are not known; None where they are.
    """

    folder: Path
    files: tuple[str, ...]
    parity: dict[str, float]
    no_targets: str | None


def require_export(formats: Sequence[Format]) -> None:
    """Does nothing where policies can be exported in these formats.

    Raises:
        CapabilityError: Something is missing; the message names the extra to install.
    """
    needed = ["numpy", *(("onnx", "onnxruntime") if "onnx" in formats else ())]
    for name in needed:
        try:
            __import__(name)
        except ImportError as error:
            other = "; or leave ONNX out: --format torchscript" if name != "numpy" else ""
            raise CapabilityError(
                f'exports need {name}: pip install "unilab-rl[export]>=2.0,<3"{other}'
            ) from error


def export_policy(
    env: EnvProtocol,
    policy: Policy,
    source: Source,
    folder: Path,
    *,
    formats: Sequence[Format] = FORMATS,
    replace: bool = False,
) -> Exported:
    """Writes `policy.npz`, `policy.json`, `policy_runner.py` and, as asked, `policy.onnx` and `policy.pt`.

    The folder appears under its name when everything in it is complete and was compared with the policy.

    Args:
        env: The environment that the policy was trained in; it is reset and stepped, to see how observations spread.
        policy: The policy, on the environment's device.
        source: Where it comes from.
        folder: The folder to make; its parent exists, and it doesn't, or is empty.
        formats: What to write beside what the NumPy runner reads.
        replace: Whether the folder may exist; it is then replaced as a whole.

    Raises:
        CapabilityError: The policy isn't an `ExportablePolicy`, its network can't be exported, or a package is missing.
        ConfigError: The environment's description doesn't fit it.
        NonFiniteError: Observations or actions are not finite.
        ParityError: A file doesn't do what the policy does.
        OSError: The place can't be written.
    """
    require_export(formats)
    if not isinstance(policy, ExportablePolicy):
        raise CapabilityError(
            f"the policies of the algorithm {source.algorithm!r} can't be exported: a {type(policy).__name__} has no "
            "module; give it one, as ExportablePolicy describes it"
        )
    num_obs, num_actions = env.obs_groups_spec[OBS], env.num_actions
    description = env.describe()
    check_description(description, num_obs, num_actions)
    module = copy.deepcopy(policy.module).cpu().eval().requires_grad_(False)
    program = lower(module, num_obs, num_actions)
    law, no_targets = None, None
    try:
        law = target_law(description)
    except UnknownTargetError as error:
        no_targets = str(error)
    data = metadata(source, description, law, no_targets, program)
    spread = observed_spread(env, policy, seed=source.seed)
    with _appearing(folder, replace=replace) as draft:
        _write(draft, module, program, law, data, formats)
        parity = check_parity(policy, law, spread, runners(draft), env.device)
        _write_json(draft, data | {"files": _hashes(draft), "parity": parity})
        names = tuple(sorted(path.name for path in draft.iterdir()))
    return Exported(folder, names, parity, no_targets)


def _write(
    folder: Path,
    module: torch.nn.Module,
    program: PolicyProgram,
    law: TargetLaw | None,
    data: dict[str, Any],
    formats: Sequence[Format],
) -> None:
    import numpy as np

    num_obs, num_actions = len(data["observations"]["columns"]), len(data["actions"])
    about = {
        _PROPERTY: json.dumps(
            {key: value for key, value in data.items() if key != "network"}, allow_nan=False
        )
    }
    weights: dict[str, Any] = {name: weight.numpy() for name, weight in program.weights.items()}
    np.savez(folder / "policy.npz", **weights)
    (folder / _RUNNER).write_bytes(files("unilab_rl.export").joinpath(_RUNNER).read_bytes())
    if "onnx" in formats:
        from unilab_rl.export.onnx_graph import onnx_model

        model = onnx_model(program, law, num_obs, num_actions, about)
        (folder / "policy.onnx").write_bytes(model.SerializeToString())
    if "torchscript" in formats:
        from unilab_rl.export.torchscript import save_torchscript

        save_torchscript(folder / "policy.pt", module, law, num_obs, about)
    _write_json(folder, data | {"files": _hashes(folder)})


def _hashes(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file but the metadata, by name."""
    found = sorted(path for path in folder.iterdir() if path.name != _PROPERTY)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _write_json(folder: Path, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / _PROPERTY).write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def _appearing(folder: Path, *, replace: bool) -> Iterator[Path]:
    """Hands out a draft of a folder, which gets its name if nothing is raised, and is gone otherwise."""
    draft, old = (folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.{end}") for end in ("tmp", "old"))
    draft.mkdir()
    try:
        yield draft
        if replace and folder.exists():
            os.rename(folder, old)
        os.rename(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        if old.exists():
            os.rename(old, folder)
        raise
    if old.exists():
        shutil.rmtree(old)
