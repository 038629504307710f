"""A policy and the law of its targets as TorchScript, which C++ programs load."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from unilab_rl.export.targets import TargetLaw

__all__ = ["load_torchscript", "save_torchscript"]


class _Exported(torch.nn.Module):
    """From raw observations (B, O) to actions (B, A), or to these and targets (B, A)."""

    def __init__(self, module: torch.nn.Module, law: TargetLaw | None) -> None:
        super().__init__()
        self.policy = module
        self._law = law

    def forward(self, obs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        actions: torch.Tensor = self.policy(obs)
        return actions if self._law is None else (actions, self._law(actions))


def save_torchscript(
    path: Path, module: torch.nn.Module, law: TargetLaw | None, num_obs: int, properties: dict[str, str]
) -> None:
    """Writes a policy.

    Args:
        path: The file.
        module: From (B, num_obs) to (B, A), on the CPU and in evaluation mode.
        law: From actions to targets; None: the file returns actions alone.
        num_obs: Width of an observation, O.
        properties: Texts that `torch.jit.load` gives back as extra files.
    """
    with _without_deprecation(), torch.no_grad():
        traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
            _Exported(module, law).eval(), torch.zeros(2, num_obs)
        )
        torch.jit.save(traced, str(path), _extra_files=properties)


def load_torchscript(path: Path) -> torch.nn.Module:
    """Returns the module that a file holds, on the CPU."""
    with _without_deprecation():
        module: torch.nn.Module = torch.jit.load(  # type: ignore[no-untyped-call]
            str(path), map_location="cpu"
        )
    return module


@contextlib.contextmanager
def _without_deprecation() -> Iterator[None]:
    """Torch wants users of TorchScript to move on; who asks for such a file has heard that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated")
        yield
