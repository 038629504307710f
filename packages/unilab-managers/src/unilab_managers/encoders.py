"""Joint encoders that read wrong: an offset of each joint's position, the same until a reset draws another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from unilab_core.scene import EntityScene

__all__ = ["EncoderBias", "Encoders"]


class EncoderBias:
    """What the encoders of one entity add to the positions of its joints: row state.

    Draws start from what startup has given each row (0 without), so that resets do not add up; several in one reset do,
    in their order. Joints and rows that a reset does not draw for keep what they have.

    Attributes:
        values: (N, J) float32, m or rad: reading = position + value. Rewritten in place; to be read only.
    """

    def __init__(self, num_envs: int, num_joints: int, device: torch.device) -> None:
        """Starts with encoders that are exact."""
        self.values = torch.zeros(num_envs, num_joints, device=device)
        self._baseline = torch.zeros_like(self.values)
        self._is_staged = torch.zeros_like(self.values, dtype=torch.bool)
        """Which values were drawn in the reset that is being staged: later draws of it add to them."""

    def add(
        self, offsets: torch.Tensor, env_ids: torch.Tensor, joint_ids: torch.Tensor, *, to_baseline: bool
    ) -> None:
        """Adds to what randomisation starts from, or to what this reset has added before.

        Args:
            offsets: (K, J') m or rad.
            env_ids: (K,) int64.
            joint_ids: (J',) int64 columns of `values`.
            to_baseline: Whether later resets shall start from the result.
        """
        cells = (env_ids[:, None], joint_ids)
        start = torch.where(self._is_staged[cells], self.values[cells], self._baseline[cells])
        self.values[cells] = start + offsets
        if to_baseline:
            self._baseline[cells] = self.values[cells]
        else:
            self._is_staged[cells] = True

    def reset(self, env_ids: torch.Tensor) -> None:
        """The reset of the rows, (K,) int64, is committed."""
        self._is_staged[env_ids] = False


class Encoders:
    """The encoders of an environment's entities; exact unless an event says otherwise.

    What follows from the reading and not from the position: observations with `biased=True`, and what a target of a
    position action means, for the drive that follows it knows the joint by its encoder only.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_scene", "_num_envs", "_device", "_biases")
    """What it is told, and what `row_state_roots` names; it has no state of its own."""

    def __init__(self, scene: EntityScene, num_envs: int, device: torch.device) -> None:
        """Starts with encoders that are exact."""
        self._scene = scene
        self._num_envs, self._device = num_envs, device
        self._biases: dict[str, EncoderBias] = {}

    def make_bias(self, entity: str) -> EncoderBias:
        """Returns the biases of an entity's encoders, the same at every call; for constructors of events.

        Raises:
            UnknownNameError: There is no such entity; the message lists the nearest.
        """
        if entity not in self._biases:
            joints = len(self._scene[entity].joint_names)
            self._biases[entity] = EncoderBias(self._num_envs, joints, self._device)
        return self._biases[entity]

    def bias(self, entity: str) -> torch.Tensor | None:
        """Returns what an entity's encoders add, (N, J) m or rad, rewritten by resets; None where they are exact."""
        found = self._biases.get(entity)
        return None if found is None else found.values

    def joint_pos(self, entity: str) -> torch.Tensor:
        """Returns what an entity's encoders read, (N, J) m or rad; where they are exact, the positions themselves."""
        positions, bias = self._scene[entity].data.joint_pos, self.bias(entity)
        return positions if bias is None else positions + bias

    def reset_resolved(self, ids: torch.Tensor) -> None:
        """The reset of the rows, (K,) int64, is committed; asks the device nothing."""
        for bias in self._biases.values():
            bias.reset(ids)

    def row_state_roots(self) -> dict[str, object]:
        """Returns the biases by a name each: what a rejected reset puts back."""
        return {f"encoders.{entity}": bias for entity, bias in self._biases.items()}
