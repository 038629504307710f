"""Sustained wrenches: what pushes bodies from step to step, appended to every control."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["Wrenches"]

_AXES = ("force_w[x]", "force_w[y]", "force_w[z]", "torque_w[x]", "torque_w[y]", "torque_w[z]")


class Wrenches:
    """Forces and torques on the W declared bodies of all rows, and the packet in which they follow the control.

    World frame. The force acts at the body's centre of mass, as the engine applies it; a force elsewhere is this force
    and the torque r x F, r from the centre of mass to where it acts.

    Attributes:
        bodies: Names of the declared bodies in the composed model, in the order of their columns.
        values: (N, 6 * W) float32: force (N) and torque (N m) of each body; zero on rows that were reset.
    """

    def __init__(self, bodies: Sequence[str], num_controls: int, num_envs: int, device: torch.device) -> None:
        """Allocates the buffers; nothing pushes."""
        self.bodies = tuple(bodies)
        self.values = torch.zeros(num_envs, 6 * len(self.bodies), device=device)
        self._packet = torch.zeros(num_envs, num_controls + self.values.shape[1], device=device)
        self._columns = {name: 6 * i for i, name in enumerate(self.bodies)}
        self._device = device
        self._index: dict[tuple[str, ...], torch.Tensor] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """A label for each of the 6 * W columns."""
        return tuple(f"{body}:{axis}" for body in self.bodies for axis in _AXES)

    @property
    def watched(self) -> dict[str, torch.Tensor]:
        """What a step must find finite: the wrenches, where any were declared."""
        return {"wrench": self.values} if self.bodies else {}

    def append_to(self, ctrl: torch.Tensor) -> torch.Tensor:
        """Returns (N, A + 6 * W): the control (N, A) and the wrenches; rewritten by the next call."""
        return torch.cat([ctrl, self.values], dim=1, out=self._packet) if self.bodies else ctrl

    def columns(self, bodies: tuple[str, ...], owner: str) -> torch.Tensor:
        """Returns (6 * B,) int64 columns of bodies by their names in the composed model.

        Raises:
            RuntimeError: One of them was not declared.
        """
        found = self._index.get(bodies)
        if found is None:
            if undeclared := [name for name in bodies if name not in self._columns]:
                raise RuntimeError(
                    f"{owner}: {undeclared} were not declared as bodies to push before the backend was made (declared: "
                    f"{list(self.bodies)}); name them in Declared.wrench_bodies, which terms do that are marked with "
                    "@applies_wrench"
                )
            starts = [self._columns[name] for name in bodies]
            found = torch.tensor([start + i for start in starts for i in range(6)], device=self._device)
            self._index[bodies] = found
        return found

    def write(
        self, columns: torch.Tensor, env_ids: torch.Tensor, force_w: torch.Tensor, torque_w: torch.Tensor
    ) -> None:
        """Writes checked values: (K,) rows, (K, B, 3) forces and torques of the bodies of `columns`."""
        wrench = torch.cat([force_w, torque_w], dim=2).flatten(1)
        self.values[env_ids[:, None], columns] = wrench

    def clear(self, env_ids: torch.Tensor) -> None:
        """Lets go of the rows (K,)."""
        if self.bodies:
            self.values[env_ids] = 0.0
