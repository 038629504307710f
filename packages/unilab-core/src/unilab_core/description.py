"""What an environment is, in names: for explain, export and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["EnvDescription"]


@dataclass(frozen=True)
class EnvDescription:
    """Names and layouts that a policy's user needs; plain data.

    Attributes:
        step_dt: Length of a control step, s.
        episode_length_s: Time limit of an episode, s.
        observations: Group to the label of each column, in order.
        actions: Label of each action column, in order.
        joints: Joint names in the model's order.
        terms: Kind of manager to the names of its terms.
        reads: What a step reads, as keys of the read packet.
        capabilities: What the backend can do.
    """

    step_dt: float
    episode_length_s: float
    observations: Mapping[str, tuple[str, ...]]
    actions: tuple[str, ...]
    joints: tuple[str, ...]
    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Returns the description as plain dicts, tuples and scalars."""
        return asdict(self)
