"""Controls that follow the state within a control step, as those of a motor do whose torque depends on its speed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from unilab_core.io import BackendIO
from unilab_core.nan_guard import NanGuard
from unilab_core.verdict import check_control
from unilab_core.wrenches import Wrenches

__all__ = ["SubstepLoop"]


class SubstepLoop:
    """Steps physics substep by substep: each writes one control and reads everything once.

    A control that is not finite would leave the other rows in the middle of a step. It counts as 0, and the step's
    verdict finds it: a row whose state is not finite ends, as the engine calls it bad; any other is an error.
    """

    def __init__(self, num_substeps: int, num_envs: int, num_controls: int, device: torch.device) -> None:
        """Allocates the sum in which a control that is not finite leaves its mark."""
        self._substeps = num_substeps
        self._sum = torch.zeros(num_envs, num_controls, device=device)

    def run(
        self,
        first: torch.Tensor,
        follow: Callable[[torch.Tensor], torch.Tensor],
        io: BackendIO,
        wrenches: Wrenches,
        guard: NanGuard,
        owner: str,
    ) -> None:
        """Advances physics by one control step.

        Args:
            first: (N, nu) control of the first substep, judged already.
            follow: Returns the control of the next substep, given that of the one before.
            io: Writes and reads.
            wrenches: What pushes bodies, the same throughout.
            guard: Keeps the controls, to step them again.
            owner: Whose step, for error messages.

        Raises:
            TypeError: `follow` did not return a float32 tensor.
            ValueError: It did not return (N, nu).
        """
        control = first
        self._sum.copy_(first)
        for substep in range(self._substeps):
            if substep:
                rows, width = self._sum.shape
                control = check_control(follow(control), rows, width, self._sum.device, owner, "_follow")
                self._sum += control
                control = control.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            packet = wrenches.append_to(control)
            guard.keep_control(packet)
            io.substep(packet)
            io.read()

    def watched(self, bad: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns what a step must find finite: the sum of its controls, but for rows that end as `bad`, (N,) bool."""
        return {"control": self._sum.masked_fill(bad.unsqueeze(1), 0.0)}
