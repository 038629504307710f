"""What one step of an environment returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Observations", "TorchEnvState"]

Observations = dict[str, torch.Tensor]
"""Group name to (N, dim) float32: `"obs"`, and optionally `"critic"`."""


@dataclass
class TorchEnvState:
    """The outcome of a transition. Tensors may be rewritten by the next `step`; clone what must last.

    Attributes:
        obs: Group to (N, dim) float32; after an automatic reset, rows that ended show the new episode.
        reward: (N,) float32.
        terminated: (N,) bool: the task ended. Describes the transition, also after an automatic reset.
        truncated: (N,) bool: the episode was cut, for example by its time limit. Both flags may be true.
        info: `log` (0-d tensors), `timing` (s), and on steps where episodes ended `episode`, as `<key>/sum` and
            `<key>/count` so that means over unequal batches come out right; on steps in which a guard ended rows
            `nonfinite_rows`, (N,) bool, whose transitions are none to learn from. A fresh dict each step.
        final_observation: None unless an episode ended in this step; then full width: rows that ended hold the true
            observation before their reset, the others equal `obs`.
    """

    obs: Observations
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    info: dict[str, Any]
    final_observation: Observations | None = None
