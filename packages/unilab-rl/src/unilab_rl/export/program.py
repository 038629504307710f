"""A network as a list of named operations on arrays: what the ONNX graph and the NumPy runner are both made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["OBS", "PolicyProgram", "Step"]

OBS = "obs"
"""What the input is called."""


@dataclass(frozen=True)
class Step:
    """One operation.

    Attributes:
        op: Its name, one of those that `policy_runner.py` defines.
        inputs: Its operands: the input, results of earlier steps, or weights.
        output: What its result is called.
        settings: Its numbers, for example `{"alpha": 1.0}`.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    settings: dict[str, float] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Returns it as plain data."""
        data: dict[str, Any] = {"op": self.op, "inputs": list(self.inputs), "output": self.output}
        return data | ({"settings": self.settings} if self.settings else {})


@dataclass(frozen=True)
class PolicyProgram:
    """Operations in the order in which they are done, on rows `obs` of shape (B, O).

    Attributes:
        steps: The operations.
        weights: float32 tensors on the CPU by name, each of which broadcasts to (B, width).
        output: Which result is the action, (B, A).
    """

    steps: tuple[Step, ...]
    weights: dict[str, torch.Tensor]
    output: str
